-- What is left once `alone.lua`, `pair.lua`, `crowd.lua` and `beat.lua` have had their turn.

local posts, channels = {}, {}

-- What is told to one process goes in one message.
local function post(key, session, message)
  local channel = channel_of(key, session)
  if not posts[channel] then
    posts[channel] = {}
    channels[#channels + 1] = channel
  end
  table.insert(posts[channel], message)
end

local function parse(id, text)
  local weight, lease, since, arrival, fence, session, rest = struct.unpack(CLAIM, text)
  return {
    id = id, weight = weight, lease = lease, since = since, arrival = arrival, fence = fence, session = session,
    who = string.sub(text, rest),
  }
end

local function packed(place)
  return struct.pack(CLAIM, place.weight, place.lease, place.since, place.arrival, place.fence, place.session) .. place.who
end

-- From one string to all the keys.
local function unfold(key, asker)
  local text, order, deadlines = texts[key], beside(key)
  local since, deadline, fence, begin, ends, asked, second = opened(text)
  local id, lease, weight, capacity, session, rest = struct.unpack(ASK, text, begin)
  local last, earliest = fence + BLOCK - 1, math.min(deadline, ends or deadline)
  local expiry = expiry_of(math.max(deadline, ends or 0, last + 1))
  local following = second and struct.unpack('<s', text, second)
  -- Without memory those who are there already are served, and nobody else.
  if what ~= 'claim' or id == asker or following == asker then redis.call('PEXPIREAT', key, at(expiry)) end
  redis.call('ZADD', order, '1', id)
  redis.call('ZADD', deadlines, int(deadline), id)
  redis.call('DEL', key)
  redis.call('HSET', key,
    'n', struct.pack(LINE, capacity, last, weight, 1, second and 1 or 0, second and 2 or 1, expiry, earliest),
    '=' .. id, struct.pack(CLAIM, weight, lease, since, 1, fence, session) .. string.sub(text, rest, (second or 0) - 1))
  if second then
    local _, lease, weight, _, session, rest = struct.unpack(ASK, text, second)
    redis.call('ZADD', order, '2', following)
    redis.call('ZADD', deadlines, int(ends), following)
    redis.call('HSET', key,
      '=' .. following, struct.pack(CLAIM, weight, lease, asked, 2, 0, session) .. string.sub(text, rest))
  end
  for _, each in ipairs({ key, order, deadlines }) do redis.call('PEXPIREAT', each, at(expiry)) end
  texts[key] = false
end

local function load(key, id)
  local order, deadlines = beside(key)
  local found = redis.call('HMGET', key, 'n', '=' .. id)
  local line = { key = key, order = order, deadlines = deadlines, longest = 0, changed = false, moved = false }
  -- Claims as they are by now, false for those that are gone; and those to be written.
  line.places, line.written = { [id] = found[2] and parse(id, found[2]) }, {}
  line.capacity, line.last, line.taken, line.held, line.waiting, line.arrivals, line.expiry, line.earliest =
    struct.unpack(LINE, found[1] or struct.pack(LINE, 0, 0, 0, 0, 0, 0, 0, 0))
  return line
end

local function expire(line)
  local need = math.max(line.longest, line.last + 1)
  if need > line.expiry then
    line.expiry = expiry_of(need)
    line.moved = true
  end
end

local function save(line)
  if line.held + line.waiting == 0 then
    if line.changed or (line.last ~= 0 and line.last < now) then put_away(line.key, line.last) end
    return
  end
  expire(line)
  if line.changed or line.moved then
    local fields = {
      'n', struct.pack(LINE, line.capacity, line.last, line.taken, line.held, line.waiting, line.arrivals, line.expiry,
        line.earliest),
    }
    for id, place in pairs(line.written) do
      fields[#fields + 1] = '=' .. id
      fields[#fields + 1] = packed(place)
      if #fields > 1000 then
        redis.call('HSET', line.key, unpack(fields))
        fields = {}
      end
    end
    if #fields > 0 then redis.call('HSET', line.key, unpack(fields)) end
  end
  if not line.moved then return end
  for _, key in ipairs({ line.key, line.order, line.deadlines }) do redis.call('PEXPIREAT', key, at(line.expiry)) end
end

local function find(line, id)
  local place = line.places[id]
  if place == nil then
    local found = redis.call('HGET', line.key, '=' .. id)
    place = found and parse(id, found)
    line.places[id] = place
  end
  return place
end

local function write(line, place)
  line.places[place.id], line.written[place.id], line.changed = place, place, true
end

local function fits(line, weight)
  return line.taken + weight <= line.capacity
end

local function wanted(line)
  return line.waiting > 0 and 1 or 0
end

local function told(line, place, what, rest)
  post(line.key, place.session, what .. ' ' .. place.id .. ' ' .. place.session .. (rest or ''))
end

local function granted(line, place)
  told(line, place, 'G', ' ' .. int(place.fence) .. ' ' .. wanted(line))
end

-- In order of arrival: grants go in order, so fences do too.
local function in_order(a, b)
  return a.arrival < b.arrival
end

local function all(line, ids)
  local places = {}
  for _, id in ipairs(ids) do places[#places + 1] = find(line, id) end
  table.sort(places, in_order)
  return places
end

local function holders(line)
  if line.held == 0 then return {} end
  return all(line, redis.call('ZRANGE', line.order, 0, line.held - 1))
end

local function remove(line, place)
  redis.call('ZREM', line.order, place.id)
  redis.call('ZREM', line.deadlines, place.id)
  redis.call('HDEL', line.key, '=' .. place.id)
  if place.fence > 0 then
    line.held, line.taken = line.held - 1, line.taken - place.weight
  else
    line.waiting = line.waiting - 1
  end
  line.places[place.id], line.written[place.id], line.changed = false, nil, true
end

-- Grants to a claim at the front. The deadline does not move: only its own session moves it.
local function grant(line, place, waiters)
  local floor = math.min(now, last_before(waiters))
  place.fence = math.max(line.last, floor) + 1
  line.last = place.fence + BLOCK - 1
  line.held, line.taken = line.held + 1, line.taken + place.weight
  write(line, place)
end

local function promote(line)
  local places = {}
  while line.waiting > 0 and line.taken < line.capacity do
    local place = find(line, redis.call('ZRANGE', line.order, line.held, line.held)[1])
    if not fits(line, place.weight) then break end
    grant(line, place, line.waiting)
    line.waiting = line.waiting - 1
    places[#places + 1] = place
  end
  return places
end

-- Drops what has ended and grants to whoever now fits; the one who asks is told by the answer.
local function sweep(line, asker)
  if line.held + line.waiting == 0 or now < line.earliest then return end
  local ended = all(line, redis.call('ZRANGEBYSCORE', line.deadlines, '-inf', int(now)))
  for _, place in ipairs(ended) do
    remove(line, place)
    if place.id ~= asker then told(line, place, 'X') end
  end
  line.earliest = tonumber(redis.call('ZRANGE', line.deadlines, 0, 0, 'WITHSCORES')[2] or 0)
  line.changed = true
  if #ended == 0 then return end
  for _, place in ipairs(promote(line)) do
    if place.id ~= asker then granted(line, place) end
  end
end

local function tell_granted(line)
  for _, place in ipairs(promote(line)) do granted(line, place) end
end

local function heard(line, place)
  local deadline = math.min(now + place.lease, TOP)
  -- First, as above: a write that needs no memory.
  redis.call('PEXPIREAT', line.key, at(line.expiry))
  redis.call('ZADD', line.deadlines, 'GT', int(deadline), place.id)
  line.longest = math.max(line.longest, deadline)
end

local function deadline_of(line, id)
  return tonumber(redis.call('ZSCORE', line.deadlines, id))
end

-- When the first of the holders ends. Those that end soon are mostly holders.
local function first_holder_ends(line)
  local from = 0
  while true do
    for _, id in ipairs(redis.call('ZRANGE', line.deadlines, from, from + 9)) do
      if find(line, id).fence > 0 then return deadline_of(line, id) end
    end
    from = from + 10
  end
end

-- When the one before it may have ended; for the first waiter, when a holder may have.
local function look_again(line, ahead)
  if ahead == line.held and line.held > 1 then return first_holder_ends(line) end
  return deadline_of(line, redis.call('ZRANGE', line.order, ahead - 1, ahead - 1)[1])
end

local function standing(line, place, ahead)
  if not place then return { 'gone' } end
  if place.fence > 0 then return { 'held', int(place.fence), wanted(line) } end
  ahead = ahead or redis.call('ZRANK', line.order, place.id)
  return { 'waiting', ahead, int(math.max(look_again(line, ahead) - now, 0)) }
end

local function join(line, place)
  line.capacity = place.capacity
  local ahead = line.held + line.waiting
  local first = line.waiting == 0
  local fit = first and fits(line, place.weight)
  if first and not fit then
    for _, holder in ipairs(holders(line)) do told(line, holder, 'W') end
  end
  if not fit and not waits then return { 'busy' } end
  local deadline = math.min(now + place.lease, TOP)
  -- Sets of an idle line are new: they have no end yet.
  if ahead == 0 then line.expiry, line.earliest = 0, deadline end
  line.arrivals, line.longest = line.arrivals + 1, deadline
  line.earliest = math.min(line.earliest, deadline)
  place.arrival = line.arrivals
  redis.call('ZADD', line.order, int(place.arrival), place.id)
  redis.call('ZADD', line.deadlines, int(deadline), place.id)
  if fit then
    grant(line, place, 1)
  else
    line.waiting = line.waiting + 1
    write(line, place)
  end
  return standing(line, place, ahead)
end

local function again(line, place, asked)
  place.lease = asked.lease
  heard(line, place)
  local smaller = place.fence > 0 and asked.weight < place.weight
  if smaller then
    line.taken = line.taken - place.weight + asked.weight
    place.weight = asked.weight
  end
  write(line, place)
  if smaller then tell_granted(line) end
  return standing(line, place)
end

local operations = {}

-- claim: as ASK says, how many milliseconds a string of it is kept
function operations.claim(line, text)
  local id, lease, weight, capacity, session, rest = struct.unpack(ASK, text)
  local asked = {
    id = id, session = session, weight = weight, capacity = capacity, lease = lease, since = now, fence = 0,
    who = string.sub(text, rest),
  }
  sweep(line, id)
  if asked.weight == 0 or asked.weight > asked.capacity then return { 'weight' } end
  if line.held + line.waiting > 0 and line.capacity ~= asked.capacity then return { 'capacity', line.capacity } end
  local place = find(line, id)
  if place then return again(line, place, asked) end
  if math.max(line.last, now) > last_before(line.waiting + 1) then return { 'fences' } end
  return join(line, asked)
end

-- beat: id
function operations.beat(line, id)
  sweep(line, id)
  local place = find(line, id)
  if place then heard(line, place) end
  return standing(line, place)
end

-- release: id, how many fences of the block are spent
function operations.release(line, id, used)
  sweep(line, id)
  local place = find(line, id)
  if not place then return { 'gone' } end
  remove(line, place)
  if place.fence > 0 and line.last == place.fence + BLOCK - 1 then line.last = spent(place.fence, used) end
  tell_granted(line)
  return { 'released' }
end

-- evict: a fence or 0 for all, what to tell
function operations.evict(line, fence, why)
  sweep(line, nil)
  local answer = { 'evicted' }
  fence = tonumber(fence)
  for _, place in ipairs(holders(line)) do
    if fence == 0 or (place.fence <= fence and fence < place.fence + BLOCK) then
      remove(line, place)
      told(line, place, 'E', ' ' .. why)
      answer[#answer + 1] = int(place.fence)
    end
  end
  tell_granted(line)
  return answer
end

-- look: the claims as they are
function operations.look(line)
  local answer = { int(line.capacity) }
  for _, id in ipairs(redis.call('ZRANGE', line.order, 0, -1)) do
    local place, deadline = find(line, id), deadline_of(line, id)
    if deadline > now then
      answer[#answer + 1] = { int(place.weight), int(place.since), int(deadline), int(place.fence), place.who }
    end
  end
  return answer
end

local arguments = { claim = 2, beat = 1, release = 2, evict = 2, look = 0 }

-- The same operation on each key, with its own arguments.
local each = arguments[what]
for i, key in ipairs(KEYS) do
  if not answers[i + 1] then
    local from = 3 + (i - 1) * each
    local id = each == 0 and '' or what == 'claim' and struct.unpack('<s', ARGV[from]) or ARGV[from]
    if texts[key] then unfold(key, id) end
    local line = load(key, id)
    answers[i + 1] = operations[what](line, unpack(ARGV, from, from + each - 1))
    save(line)
  end
end
for _, channel in ipairs(channels) do publish(channel, table.concat(posts[channel], '\n')) end
return answers
