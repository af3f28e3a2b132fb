-- What a crowd does all the time: one more joins behind the others, and the only holder hands over to the next. They are
-- `join` and `release` of line.lua with nothing made on the way; what is not that plain is left to those.

-- The keys beside a line's own.
local function beside(key)
  local close = string.find(key, '}', 1, true)
  local tag, name = string.sub(key, 1, close), string.sub(key, close + 2)
  return tag .. 'w' .. name, tag .. 'd' .. name
end

-- How a session listens is the first letter of its name: s for sharded channels, p for plain ones.
local function channel_of(key, session)
  local stem = string.sub(key, 1, string.find(key, '{', 1, true) - 1)
  if string.sub(session, 1, 1) == 's' then stem = string.sub(key, 1, string.find(key, '}', 1, true)) end
  return stem .. '!' .. string.match(session, '^[^.]*')
end

-- A message that cannot be sent is repaired by the next heartbeat; the change itself is made.
local function publish(channel, message)
  redis.pcall(string.find(channel, '{', 1, true) and 'SPUBLISH' or 'PUBLISH', channel, message)
end

local function last_before(blocks)
  return TOP - blocks * BLOCK
end

-- The claim that is spoken of.
local function id_at(place)
  if what ~= 'claim' then return ARGV[place] end
  return (struct.unpack('<s', ARGV[place]))
end

local crowd = {}

function crowd.claim(key, found, capacity, last, taken, waiting, arrivals, expiry, earliest)
  local id, lease, weight, asked, session, rest = struct.unpack(ASK, ARGV[3])
  local deadline = math.min(now + lease, TOP)
  local fits = waiting == 0 and taken + weight <= capacity
  if found or fits or weight == 0 or weight > capacity or capacity ~= asked or ARGV[5] ~= '1'
    or deadline > expiry or last >= expiry or math.max(last, now) > last_before(waiting + 1) then return end
  local order, deadlines = beside(key)
  local ahead, place = int(waiting), int(arrivals + 1)
  local before = redis.call('ZRANGE', order, ahead, ahead)[1]
  redis.call('ZADD', order, place, id)
  redis.call('ZADD', deadlines, int(deadline), id)
  redis.call('HSET', key,
    'n', struct.pack(LINE, capacity, last, taken, 1, waiting + 1, arrivals + 1, expiry, math.min(earliest, deadline)),
    '=' .. id, struct.pack(CLAIM, weight, lease, now, arrivals + 1, 0, session) .. string.sub(ARGV[3], rest))
  if waiting == 0 then
    local _, _, _, _, _, holder = struct.unpack(CLAIM, redis.call('HGET', key, '=' .. before))
    publish(channel_of(key, holder), 'W ' .. before .. ' ' .. holder)
  end
  local look_again = math.max(redis.call('ZSCORE', deadlines, before) - now, 0)
  return ' waiting ' .. int(waiting + 1) .. ' ' .. int(look_again)
end

function crowd.release(key, found, capacity, last, _, waiting, arrivals, expiry, earliest)
  if not found or waiting == 0 then return end
  local _, _, _, _, fence = struct.unpack(CLAIM, found)
  local id, order, deadlines = ARGV[3], beside(key)
  local following = redis.call('ZRANGE', order, '1', '1')[1]
  local text = redis.call('HGET', key, '=' .. following)
  local weight, lease, since, arrival, _, session, rest = struct.unpack(CLAIM, text)
  -- The next of those behind it might fit as well.
  if fence == 0 or (weight < capacity and waiting > 1) then return end
  if last == fence + BLOCK - 1 then last = spent(fence, ARGV[4]) end
  fence = math.max(last, math.min(now, last_before(waiting))) + 1
  last = fence + BLOCK - 1
  if last >= expiry then return end
  redis.call('ZREM', order, id)
  redis.call('ZREM', deadlines, id)
  redis.call('HDEL', key, '=' .. id)
  redis.call('HSET', key,
    'n', struct.pack(LINE, capacity, last, weight, 1, waiting - 1, arrivals, expiry, earliest),
    '=' .. following, struct.pack(CLAIM, weight, lease, since, arrival, fence, session) .. string.sub(text, rest))
  local wanted = waiting > 1 and ' 1' or ' 0'
  publish(channel_of(key, session), 'G ' .. following .. ' ' .. session .. ' ' .. int(fence) .. wanted)
  return ' released'
end

if crowd[what] and #KEYS == 1 and not texts[KEYS[1]] then
  local found = redis.call('HMGET', KEYS[1], 'n', '=' .. id_at(3))
  if found[1] then
    local capacity, last, taken, held, waiting, arrivals, expiry, earliest = struct.unpack(LINE, found[1])
    if held == 1 and now < earliest then
      local answer = crowd[what](KEYS[1], found[2], capacity, last, taken, waiting, arrivals, expiry, earliest)
      if answer then return ARGV[2] .. answer end
    end
  end
end
