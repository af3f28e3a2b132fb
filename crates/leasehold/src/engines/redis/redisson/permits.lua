-- RPermitExpirableSemaphore: string NAME = permits that are free, zset TIMEOUTS permit (16 bytes) = end in ms.
-- KEYS: name, ours, channel, timeouts. ARGV: who, 1 if it waits, count, of.

local FOREVER = '922337203685477'

-- The permits of an owner: any 16 bytes will do, and these need not be stored.
local function permits(id, count)
  local ids = {}
  for i = 1, count do ids[i] = string.sub(redis.sha1hex(id .. ':' .. i), 1, 16) end
  return ids
end

local function end_expired()
  local ended = redis.call('ZRANGEBYSCORE', KEYS[4], 0, int(millis), 'LIMIT', 0, SOME)
  for _, id in ipairs(ended) do redis.call('ZREM', KEYS[4], id) end
  if #ended > 0 then give_back(#ended) end
  if redis.call('EXISTS', ours) == 1 then sweep() end
end

-- One millisecond more: the clock has begun the one that it shows.
local function add_permits(count)
  for _, id in ipairs(permits(owner, count)) do redis.call('ZADD', KEYS[4], int(millis + lease + 1), id) end
end

local function drop_permits(id, place)
  local dropped = 0
  for _, permit in ipairs(permits(id, place.weight)) do dropped = dropped + redis.call('ZREM', KEYS[4], permit) end
  if dropped > 0 then give_back(dropped) end
  return dropped
end

local function renew_permits()
  end_expired()
  local place = note(owner)
  if not place then return nil end
  for _, id in ipairs(permits(owner, place.weight)) do
    if not redis.call('ZSCORE', KEYS[4], id) then
      drop_permits(owner, place)
      forget(owner)
      return nil
    end
  end
  add_permits(place.weight)
  return renewed()
end

local function first_permit_end()
  local first = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2]
  return first and tonumber(first) < tonumber(FOREVER) and tonumber(first) - millis + 1 or -1
end

kinds.permits = {
  claim = function()
    local again = renew_permits()
    if again then return again end
    if redis.call('SETNX', name, ARGV[9]) == 1 then publish(KEYS[3], ARGV[9]) end
    local free, count = tonumber(redis.call('GET', name)), tonumber(ARGV[8])
    local all = free + redis.call('ZCARD', KEYS[4])
    if all ~= tonumber(ARGV[9]) then return { 'capacity', int(math.max(all, 0)) } end
    if free < count then return { 'busy', first_permit_end() } end
    local refused = full(redis.call('HLEN', ours) / 2)
    if refused then return refused end
    redis.call('DECRBY', name, count)
    add_permits(count)
    return granted(count, ARGV[6])
  end,
  beat = function()
    return renew_permits() or { 'gone' }
  end,
  release = function()
    end_expired()
    local place = note(owner)
    forget(owner, ARGV[6])
    return { place and drop_permits(owner, place) > 0 and 'released' or 'gone' }
  end,
  evict = function()
    end_expired()
    local lost = evict_permits(drop_permits)
    if ARGV[6] ~= '0' or #lost == SOME then return lost end
    for _, id in ipairs(redis.call('ZRANGE', KEYS[4], 0, SOME - #lost - 1)) do
      redis.call('ZREM', KEYS[4], id)
      give_back(1)
      lost[#lost + 1] = 'a permit'
    end
    return lost
  end,
  look = function()
    local rows, known = {}, {}
    for id, place in pairs(grants()) do
      for _, permit in ipairs(permits(id, place.weight)) do known[permit] = true end
      if place.ends > now then rows[#rows + 1] = shown(id, place.weight, (place.ends - now) / 1000) end
    end
    local all = redis.call('ZRANGEBYSCORE', KEYS[4], '(' .. int(millis), '+inf', 'WITHSCORES')
    for i = 1, #all, 2 do
      if not known[all[i]] then rows[#rows + 1] = { 'a permit', '1', int(tonumber(all[i + 1]) - millis), '0', '0', '' } end
    end
    return rows
  end,
}
