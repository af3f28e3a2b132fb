-- What a crowd does all the time: one more joins behind the others, and the only holder hands over to the next. They are
-- `join` and `release` of line.lua with nothing made on the way; what is not that plain is left to those.

-- The keys beside a line's own.
local function beside(key)
  local close = string.find(key, '}', 1, true)
  local tag, name = string.sub(key, 1, close), string.sub(key, close + 2)
  return tag .. 'w' .. name, tag .. 'd' .. name
end

if (what == 'claim' or what == 'release') and #KEYS == 1 and not (strings and strings[1]) then
  local key, id, asked = KEYS[1], ARGV[3]
  if what == 'claim' then id, asked = struct.unpack('<s', id), id end
  local numbers, found = unpack(redis.pcall('HMGET', key, 'n', '=' .. id))
  local capacity, last, taken, held, waiting, arrivals, expiry, earliest
  if numbers then
    capacity, last, taken, held, waiting, arrivals, expiry, earliest = struct.unpack(LINE, numbers)
  end
  local order, deadlines = beside(key)
  if held ~= 1 or now >= earliest then
    -- Not the plain case.
  elseif asked and not found then
    local _, lease, weight, of, session, rest = struct.unpack(ASK, asked)
    local deadline = math.min(now + lease, TOP)
    local fits = waiting == 0 and taken + weight <= capacity
    if not fits and weight > 0 and weight <= capacity and capacity == of and waits and deadline <= expiry
      and last < expiry and math.max(last, now) <= last_before(waiting + 1) then
      local ahead, place = int(waiting), int(arrivals + 1)
      local before = redis.call('ZRANGE', order, ahead, ahead)[1]
      redis.call('ZADD', order, place, id)
      redis.call('ZADD', deadlines, int(deadline), id)
      redis.call('HSET', key,
        'n', struct.pack(LINE, capacity, last, taken, 1, waiting + 1, arrivals + 1, expiry, math.min(earliest, deadline)),
        '=' .. id, struct.pack(CLAIM, weight, lease, now, arrivals + 1, 0, session) .. string.sub(asked, rest))
      if waiting == 0 then
        local _, _, _, _, _, holder = struct.unpack(CLAIM, redis.call('HGET', key, '=' .. before))
        publish(channel_of(key, holder), 'W ' .. before .. ' ' .. holder)
      end
      local look_again = math.max(redis.call('ZSCORE', deadlines, before) - now, 0)
      return ARGV[2] .. ' waiting ' .. int(waiting + 1) .. ' ' .. int(look_again)
    end
  elseif found and not asked and waiting > 0 then
    local _, _, _, _, fence = struct.unpack(CLAIM, found)
    local following = redis.call('ZRANGE', order, '1', '1')[1]
    local text = redis.call('HGET', key, '=' .. following)
    local weight, lease, since, arrival, _, session, rest = struct.unpack(CLAIM, text)
    if last == fence + BLOCK - 1 then last = spent(fence, ARGV[4]) end
    local granted = math.max(last, math.min(now, last_before(waiting))) + 1
    last = granted + BLOCK - 1
    -- Unless one waits itself, or the next of those behind might fit as well.
    if fence > 0 and (weight == capacity or waiting == 1) and last < expiry then
      redis.call('ZREM', order, id)
      redis.call('ZREM', deadlines, id)
      redis.call('HDEL', key, '=' .. id)
      redis.call('HSET', key,
        'n', struct.pack(LINE, capacity, last, weight, 1, waiting - 1, arrivals, expiry, earliest),
        '=' .. following, struct.pack(CLAIM, weight, lease, since, arrival, granted, session) .. string.sub(text, rest))
      local wanted = waiting > 1 and ' 1' or ' 0'
      publish(channel_of(key, session), 'G ' .. following .. ' ' .. session .. ' ' .. int(granted) .. wanted)
      return ARGV[2] .. ' released'
    end
  end
end
