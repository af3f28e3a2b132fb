-- RSemaphore: string NAME = permits that are free. KEYS: name, ours, channel. ARGV: who, 1 if it waits, count, of.
-- It has no owners. Our hash has ours, and the next of our clients gives back the permits of dead ones.

local function give_back(count)
  publish(KEYS[3], redis.call('INCRBY', name, int(count)))
end

local function sweep_permits()
  sweep(function(_, place) give_back(place.weight) end)
end

-- The number of permits that our claims agree on; a claim with another one is refused.
local function other_capacity()
  local capacity = redis.call('HGET', ours, 'c')
  if capacity and capacity ~= ARGV[9] and next(grants()) then return { 'capacity', capacity } end
  return nil
end

-- Milliseconds until the first of our grants ends.
local function first_end()
  local first
  for _, place in pairs(grants()) do first = math.min(first or place.ends, place.ends) end
  return first and math.ceil((first - now) / 1000) + 1 or -1
end

local function evict_permits(give)
  local fence, lost = tonumber(ARGV[6]), {}
  for id, place in pairs(grants()) do
    if #lost == SOME then break end
    if fence == 0 or (place.fence <= fence and fence < place.fence + BLOCK) then
      give(id, place)
      forget(id)
      lost[#lost + 1] = id
    end
  end
  return lost
end

kinds.semaphore = {
  claim = function()
    sweep_permits()
    local again = renewed()
    if again then return again end
    local refused = other_capacity() or full(redis.call('HLEN', ours) / 2)
    if refused then return refused end
    if redis.call('SETNX', name, ARGV[9]) == 1 then publish(KEYS[3], ARGV[9]) end
    if tonumber(redis.call('GET', name)) < tonumber(ARGV[8]) then return { 'busy', first_end() } end
    redis.call('DECRBY', name, ARGV[8])
    redis.call('HSET', ours, 'c', ARGV[9])
    return granted(tonumber(ARGV[8]), ARGV[6])
  end,
  beat = function()
    sweep_permits()
    return renewed() or { 'gone' }
  end,
  release = function()
    sweep_permits()
    local place = note(owner)
    if not place then return { 'gone' } end
    give_back(place.weight)
    forget(owner, ARGV[6])
    return { 'released' }
  end,
  evict = function()
    return evict_permits(function(_, place) give_back(place.weight) end)
  end,
  look = function()
    local rows = {}
    for id, place in pairs(grants()) do
      if place.ends > now then rows[#rows + 1] = shown(id, place.weight, (place.ends - now) / 1000) end
    end
    return rows
  end,
}
