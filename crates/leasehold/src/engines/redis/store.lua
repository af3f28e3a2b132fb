-- One value by key: a hash of v (the value), f (the largest fence shown), w (when it was written), e (when it ends).
-- Fences are decimal with twenty digits and compared as text: a number of Lua is exact up to 2^53 alone.
local key, what, fence = KEYS[1], ARGV[1], ARGV[2]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local seen, value, written, ends = unpack(redis.call('HMGET', key, 'f', 'v', 'w', 'e'))
if what ~= 'get' then
  if seen and seen > fence then return {'stale', seen} end
  redis.call('HSET', key, 'f', fence)
  seen = fence
end
if what == 'put' then
  local keep = tonumber(ARGV[4])
  redis.call('HDEL', key, 'v', 'w', 'e')
  value, written, ends = ARGV[3], string.format('%.0f', now), false
  redis.call('HSET', key, 'v', value, 'w', written)
  redis.call('PERSIST', key)
  if keep then
    ends = string.format('%.0f', now + keep)
    redis.call('HSET', key, 'e', ends)
    redis.call('PEXPIRE', key, math.ceil(keep / 1000) + ARGV[5])
  end
elseif what == 'remove' or (what == 'show' and not value) then
  redis.call('HDEL', key, 'v', 'w', 'e')
  redis.call('PEXPIRE', key, ARGV[5])
  value = false
end
if not value or (ends and tonumber(ends) <= now) then return {'none'} end
return {'some', seen, value, written, ends, string.format('%.0f', now)}
