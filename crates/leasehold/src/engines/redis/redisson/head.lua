-- Redisson's keys, and what Leasehold keeps beside them. The files of this folder make one script, in this order:
-- head, one file per kind, tail.
--
-- KEYS[1] is the name, as Java gives it. KEYS[2] is ours, a hash that Redisson never looks at:
--   l  the largest fence spent or reserved     c  the capacity that our claims agree on
--   =OWNER  fence, end, weight and beginning of one of our grants     @OWNER  who that is
--   ?OWNER  end and beginning of one of our waits for a fair lock
-- It ends by itself once all grants in it have ended and the clock has passed the last fence.
-- The other keys are those of the kind. ARGV: kind, operation, mark (comes back first, so that an answer is never
-- taken for that of another call), owner, lease in ms, then what the kind needs.
-- Times are of the server's clock, in microseconds; Redisson's own scores are milliseconds.

local BLOCK = 256

-- One call ends at most so many claims of dead owners, the next call the next ones; and a name has at most so many holders
-- and so many waiters. One script stops the whole server while it runs.
local SOME, MOST = 500, 20000

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local millis = math.floor(now / 1000)

local name, ours = KEYS[1], KEYS[2]
local owner, lease = ARGV[4], tonumber(ARGV[5])
local kinds = {}

local function int(number)
  return string.format('%.0f', number)
end

local function read(text)
  local fence, ends, weight, since = string.match(text, '^(%d+) (%d+) (%d+) (%d+)$')
  return { fence = tonumber(fence), ends = tonumber(ends), weight = tonumber(weight), since = tonumber(since) }
end

local function note(id)
  local text = redis.call('HGET', ours, '=' .. id)
  return text and read(text)
end

local function last()
  return tonumber(redis.call('HGET', ours, 'l') or 0)
end

-- A plain semaphore has no owners but those in our hash: the next of our clients gives the permits of dead ones back.
-- Of other kinds our hash outlives the keys of Redisson's that it speaks of, also when the server is slow.
local GRACE = ARGV[1] == 'semaphore' and 30 * 86400 * 1000000 or 5 * 1000000

-- Keeps our hash for as long as it says something.
local function keep(ends)
  if ends > 0 then ends = ends + GRACE end
  local need = math.ceil(math.max(ends, last()) / 1000) + 1
  local left = redis.call('PTTL', ours)
  if left < 0 or millis + left < need then redis.call('PEXPIREAT', ours, int(need)) end
end

local function write(id, place)
  redis.call('HSET', ours, '=' .. id,
    string.format('%.0f %.0f %.0f %.0f', place.fence, place.ends, place.weight, place.since))
  keep(place.ends)
end

-- A grant of ours begins. A token of Redisson's is the fence where there is one.
local function granted(weight, who, token)
  local fence, block = tonumber(token), 1
  if not fence then
    fence, block = math.max(last(), now) + 1, BLOCK
    redis.call('HSET', ours, 'l', int(fence + BLOCK - 1))
  end
  redis.call('HSET', ours, '@' .. owner, who)
  write(owner, { fence = fence, ends = now + lease * 1000, weight = weight, since = now })
  return { 'held', int(fence), block }
end

-- A grant of ours goes on.
local function renewed(block)
  local place = note(owner)
  if not place then return nil end
  place.ends = math.max(place.ends, now + lease * 1000)
  write(owner, place)
  return { 'held', int(place.fence), block or BLOCK }
end

-- Grants of ours are over: without the last one our hash says only which fences were spent.
local function settle()
  local rest = redis.call('HLEN', ours) - redis.call('HEXISTS', ours, 'l') - redis.call('HEXISTS', ours, 'c')
  if rest > 0 then return end
  local fence = last()
  redis.call('DEL', ours)
  if fence >= now then
    redis.call('HSET', ours, 'l', int(fence))
    keep(0)
  end
end

-- A grant of ours is over. Fences that were not used can be given out again while they are the last.
local function forget(id, used)
  local place = note(id)
  if not place then return end
  redis.call('HDEL', ours, '=' .. id, '@' .. id)
  if used and last() == place.fence + BLOCK - 1 then
    redis.call('HSET', ours, 'l', int(place.fence + math.min(math.max(tonumber(used), 1), BLOCK) - 1))
  end
  settle()
end

-- Our grants, by owner.
local function grants()
  local found, all = {}, redis.call('HGETALL', ours)
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 1) == '=' then found[string.sub(all[i], 2)] = read(all[i + 1]) end
  end
  return found
end

-- Forgets our grants that have ended, some of them if there are many.
local function sweep(ended)
  local some = 0
  for id, place in pairs(grants()) do
    if place.ends <= now and some < SOME then
      if ended then ended(id, place) end
      forget(id)
      some = some + 1
    end
  end
end

-- The answer to one more claim on a name that has so many.
local function full(claims)
  return claims >= MOST and { 'full' } or nil
end

-- The name is free: our hash about it is void.
local function forget_all()
  if redis.call('EXISTS', ours) == 0 then return end
  local fields = {}
  for id in pairs(grants()) do
    fields[#fields + 1] = '=' .. id
    fields[#fields + 1] = '@' .. id
  end
  for i = 1, #fields, SOME do redis.call('HDEL', ours, unpack(fields, i, math.min(i + SOME - 1, #fields))) end
  settle()
end

-- Redisson's channels take whole numbers only.
local function publish(channel, number)
  redis.call('PUBLISH', channel, number)
end

-- One holder, as it is shown: owner, weight, milliseconds left, and what we know of it.
local function shown(id, weight, left)
  local place = note(id) or { fence = 0, since = 0 }
  return { id, int(weight), int(left), int(place.fence), int(place.since), redis.call('HGET', ours, '@' .. id) or '' }
end
