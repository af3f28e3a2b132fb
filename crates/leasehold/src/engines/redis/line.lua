-- The rule of a line (line.rs), on the server. One script for every operation, so that one text is loaded and tested.
--
-- KEYS[i] is the line of a name: PREFIX{BUCKET}:NAME. Beside it, in the same slot:
--   PREFIX{BUCKET}:NAME  hash   c capacity, l last fence, t weight taken, h holders, w waiters, q arrivals, x expiry;
--                               per claim  =ID  weight lease since arrival fence session  and  @ID  who asks
--   PREFIX{BUCKET}hNAME  zset   holders by deadline
--   PREFIX{BUCKET}wNAME  zset   waiters in order of arrival
--   PREFIX{BUCKET}dNAME  zset   waiters by deadline
-- Times are microseconds of the server's clock; every number stays below 2^53.
-- ARGV[1] says what to do, ARGV[2] comes back first, so that an answer is never taken for that of another call.

local BLOCK = 256
local TOP = 9007199254740991

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function int(number)
  return string.format('%.0f', number)
end

local function at(micros)
  return int(math.ceil(micros / 1000) + 1)
end

-- Keys end by themselves once every claim has ended and the clock has passed the last fence. Later than that by as
-- much again as there was to go, so that not every heartbeat has to move it.
local function expiry_of(need)
  return math.min(need + math.max(need - now, 0), TOP)
end

local PLACE = '%.0f %.0f %.0f %.0f %.0f %s'

-- The two commonest cases come first, because making the functions below costs more than doing them: a claim on a
-- name that nobody uses, and the release of a lock that nobody waits for. What they leave is what the rest would.
local function holders_of(key)
  local close = string.find(key, '}', 1, true)
  return string.sub(key, 1, close) .. 'h' .. string.sub(key, close + 2)
end

if #KEYS == 1 and ARGV[1] == 'claim' and redis.call('EXISTS', KEYS[1]) == 0 then
  local id, weight, capacity, lease = ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
  if weight > 0 and weight <= capacity and now <= TOP - BLOCK then
    local key, holders = KEYS[1], holders_of(KEYS[1])
    local fence, deadline = now + 1, math.min(now + lease, TOP)
    local expiry = expiry_of(math.max(deadline, fence + BLOCK))
    redis.call('HSET', key, 'c', ARGV[6], 'l', int(fence + BLOCK - 1), 't', ARGV[5], 'h', '1', 'w', '0', 'q', '1',
      'x', int(expiry), '=' .. id, string.format(PLACE, weight, lease, now, 1, fence, ARGV[4]), '@' .. id, ARGV[9])
    redis.call('ZADD', holders, int(deadline), id)
    redis.call('PEXPIREAT', key, at(expiry))
    redis.call('PEXPIREAT', holders, at(expiry))
    return { ARGV[2], { 'held', int(fence), 0 } }
  end
end

if #KEYS == 1 and ARGV[1] == 'release' then
  local key, holders, id = KEYS[1], holders_of(KEYS[1]), ARGV[3]
  local found = redis.call('HMGET', key, 'l', 'h', 'w', '=' .. id)
  local deadline = found[4] and found[2] == '1' and found[3] == '0' and redis.call('ZSCORE', holders, id)
  if deadline and tonumber(deadline) > now then
    local last, fence = tonumber(found[1]), tonumber(string.match(found[4], '^%d+ %d+ %d+ %d+ (%d+)'))
    if last == fence + BLOCK - 1 then last = fence + math.min(math.max(tonumber(ARGV[4]), 1), BLOCK) - 1 end
    redis.call('DEL', key, holders)
    if last >= now then
      redis.call('HSET', key, 'l', int(last))
      redis.call('PEXPIREAT', key, at(last))
    end
    return { ARGV[2], { 'released' } }
  end
end

local posts, channels = {}, {}

-- How a session listens is the first letter of its name: s for sharded channels, p for plain ones.
local function post(line, session, message)
  local box = string.match(session, '^[^.]*')
  local channel = line.plain .. '!' .. box
  if string.sub(box, 1, 1) == 's' then channel = line.tag .. '!' .. box end
  if not posts[channel] then
    posts[channel] = {}
    channels[#channels + 1] = channel
  end
  table.insert(posts[channel], message)
end

local function publish()
  for _, channel in ipairs(channels) do
    local verb = 'PUBLISH'
    if string.find(channel, '{', 1, true) then verb = 'SPUBLISH' end
    -- A message that cannot be sent is repaired by the next heartbeat; the change itself is made.
    redis.pcall(verb, channel, table.concat(posts[channel], '\n'))
  end
end

local function load(key)
  local open, close = string.find(key, '{', 1, true), string.find(key, '}', 1, true)
  local tag, name = string.sub(key, 1, close), string.sub(key, close + 2)
  local found = redis.call('HMGET', key, 'c', 'l', 't', 'h', 'w', 'q', 'x')
  return {
    key = key, tag = tag, plain = string.sub(key, 1, open - 1),
    holders = tag .. 'h' .. name, waiters = tag .. 'w' .. name, deadlines = tag .. 'd' .. name,
    capacity = tonumber(found[1] or 0), last = tonumber(found[2] or 0), taken = tonumber(found[3] or 0),
    held = tonumber(found[4] or 0), waiting = tonumber(found[5] or 0), arrivals = tonumber(found[6] or 0),
    expiry = tonumber(found[7] or 0), longest = 0, changed = false, moved = false, fresh = {},
  }
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
    if not line.changed and (line.last == 0 or line.last >= now) then return end
    redis.call('DEL', line.key)
    if line.last >= now then
      redis.call('HSET', line.key, 'l', int(line.last))
      redis.call('PEXPIREAT', line.key, at(line.last))
    end
    return
  end
  expire(line)
  if line.changed or line.moved then
    redis.call('HSET', line.key, 'c', int(line.capacity), 'l', int(line.last), 't', int(line.taken), 'h', line.held,
      'w', line.waiting, 'q', int(line.arrivals), 'x', int(line.expiry))
  end
  local keys = line.fresh
  if line.moved then keys = { line.key, line.holders, line.waiters, line.deadlines } end
  for _, key in ipairs(keys) do redis.call('PEXPIREAT', key, at(line.expiry)) end
end

local function find(line, id)
  local found = redis.call('HGET', line.key, '=' .. id)
  if not found then return nil end
  local weight, lease, since, arrival, fence, session =
    string.match(found, '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  return {
    id = id, weight = tonumber(weight), lease = tonumber(lease), since = tonumber(since),
    arrival = tonumber(arrival), fence = tonumber(fence), session = session,
  }
end

local function write(line, place, who)
  redis.call('HSET', line.key, '=' .. place.id, string.format(PLACE, place.weight, place.lease,
    place.since, place.arrival, place.fence, place.session))
  if who then redis.call('HSET', line.key, '@' .. place.id, who) end
end

local function fits(line, weight)
  return line.taken + weight <= line.capacity
end

local function wanted(line)
  return line.waiting > 0 and 1 or 0
end

local function told(line, place, what, rest)
  post(line, place.session, what .. ' ' .. place.id .. ' ' .. place.session .. (rest or ''))
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

local function remove(line, place)
  if place.fence > 0 then
    redis.call('ZREM', line.holders, place.id)
    line.held, line.taken = line.held - 1, line.taken - place.weight
  else
    redis.call('ZREM', line.waiters, place.id)
    redis.call('ZREM', line.deadlines, place.id)
    line.waiting = line.waiting - 1
  end
  redis.call('HDEL', line.key, '=' .. place.id, '@' .. place.id)
  line.changed = true
end

local function last_before(blocks)
  return TOP - blocks * BLOCK
end

-- Grants to a claim at the front. The deadline does not move: only its own session moves it.
local function grant(line, place, deadline, waiters)
  local floor = math.min(now, last_before(waiters))
  place.fence = math.max(line.last, floor) + 1
  line.last = place.fence + BLOCK - 1
  if line.held == 0 then table.insert(line.fresh, line.holders) end
  redis.call('ZADD', line.holders, int(deadline), place.id)
  line.held, line.taken, line.changed = line.held + 1, line.taken + place.weight, true
end

local function promote(line)
  local places = {}
  while line.waiting > 0 do
    local place = find(line, redis.call('ZRANGE', line.waiters, 0, 0)[1])
    if not fits(line, place.weight) then break end
    local deadline = tonumber(redis.call('ZSCORE', line.deadlines, place.id))
    redis.call('ZREM', line.waiters, place.id)
    redis.call('ZREM', line.deadlines, place.id)
    grant(line, place, deadline, line.waiting)
    line.waiting = line.waiting - 1
    write(line, place)
    places[#places + 1] = place
  end
  return places
end

-- Drops what has ended and grants to whoever now fits; the one who asks is told by the answer.
local function sweep(line, asker)
  local ended = {}
  if line.held > 0 then
    for _, place in ipairs(all(line, redis.call('ZRANGEBYSCORE', line.holders, '-inf', int(now)))) do
      ended[#ended + 1] = place
    end
  end
  if line.waiting > 0 then
    for _, place in ipairs(all(line, redis.call('ZRANGEBYSCORE', line.deadlines, '-inf', int(now)))) do
      ended[#ended + 1] = place
    end
  end
  if #ended == 0 then return end
  for _, place in ipairs(ended) do
    remove(line, place)
    if place.id ~= asker then told(line, place, 'X') end
  end
  for _, place in ipairs(promote(line)) do
    if place.id ~= asker then granted(line, place) end
  end
end

local function tell_granted(line)
  for _, place in ipairs(promote(line)) do granted(line, place) end
end

local function heard(line, place)
  local zset = place.fence > 0 and line.holders or line.deadlines
  local deadline = math.min(now + place.lease, TOP)
  -- A server without memory lets a script go on that has begun with a write which needs none.
  redis.call('PEXPIREAT', line.key, at(line.expiry))
  redis.call('ZADD', zset, 'GT', int(deadline), place.id)
  line.longest = math.max(line.longest, deadline)
end

-- When the one before it may have ended; for the first waiter, when a holder may have.
local function look_again(line, rank)
  if rank > 0 then
    local id = redis.call('ZRANGE', line.waiters, rank - 1, rank - 1)[1]
    return tonumber(redis.call('ZSCORE', line.deadlines, id))
  end
  return tonumber(redis.call('ZRANGE', line.holders, 0, 0, 'WITHSCORES')[2])
end

local function standing(line, place)
  if not place then return { 'gone' } end
  if place.fence > 0 then return { 'held', int(place.fence), wanted(line) } end
  local rank = redis.call('ZRANK', line.waiters, place.id)
  local look = look_again(line, rank)
  return { 'waiting', line.held + rank, int(math.max(look - now, 0)) }
end

local function join(line, place, waits, who)
  line.capacity = place.capacity
  local first = line.waiting == 0
  local fit = first and fits(line, place.weight)
  if first and not fit then
    for _, holder in ipairs(all(line, redis.call('ZRANGE', line.holders, 0, -1))) do told(line, holder, 'W') end
  end
  if not fit and not waits then return { 'busy' } end
  local deadline = math.min(now + place.lease, TOP)
  line.arrivals = line.arrivals + 1
  place.arrival, line.longest, line.changed = line.arrivals, deadline, true
  if fit then
    grant(line, place, deadline, 1)
  else
    if first then
      table.insert(line.fresh, line.waiters)
      table.insert(line.fresh, line.deadlines)
    end
    redis.call('ZADD', line.waiters, int(place.arrival), place.id)
    redis.call('ZADD', line.deadlines, int(deadline), place.id)
    line.waiting = line.waiting + 1
  end
  write(line, place, who)
  return standing(line, place)
end

local function again(line, place, asked)
  place.lease = asked.lease
  heard(line, place)
  local smaller = place.fence > 0 and asked.weight < place.weight
  if smaller then
    line.changed = true
    line.taken = line.taken - place.weight + asked.weight
    place.weight = asked.weight
  end
  write(line, place)
  if smaller then tell_granted(line) end
  return standing(line, place)
end

local operations = {}

-- claim: id, session, weight, capacity, lease, 1 if it waits, who
function operations.claim(line, id, session, weight, capacity, lease, waits, who)
  local asked = {
    id = id, session = session, weight = tonumber(weight), capacity = tonumber(capacity), lease = tonumber(lease),
    since = now, fence = 0,
  }
  sweep(line, id)
  if asked.weight == 0 or asked.weight > asked.capacity then return { 'weight' } end
  if line.held + line.waiting > 0 and line.capacity ~= asked.capacity then return { 'capacity', line.capacity } end
  local place = line.held + line.waiting > 0 and find(line, id)
  if place then return again(line, place, asked) end
  if math.max(line.last, now) > last_before(line.waiting + 1) then return { 'fences' } end
  return join(line, asked, waits == '1', who)
end

-- beat: id
function operations.beat(line, id)
  sweep(line, id)
  local place = line.held + line.waiting > 0 and find(line, id)
  if place then heard(line, place) end
  return standing(line, place)
end

-- release: id, how many fences of the block are spent. What is not can be given out again while it is the last.
function operations.release(line, id, used)
  sweep(line, id)
  local place = line.held + line.waiting > 0 and find(line, id)
  if not place then return { 'gone' } end
  remove(line, place)
  if place.fence > 0 and line.last == place.fence + BLOCK - 1 then
    line.last = place.fence + math.min(math.max(tonumber(used), 1), BLOCK) - 1
  end
  tell_granted(line)
  return { 'released' }
end

-- evict: a fence or 0 for all, what to tell
function operations.evict(line, fence, why)
  sweep(line, nil)
  local answer = { 'evicted' }
  fence = tonumber(fence)
  for _, place in ipairs(all(line, redis.call('ZRANGE', line.holders, 0, -1))) do
    if fence == 0 or (place.fence <= fence and fence < place.fence + BLOCK) then
      remove(line, place)
      told(line, place, 'E', ' ' .. why)
      answer[#answer + 1] = int(place.fence)
    end
  end
  tell_granted(line)
  return answer
end

-- look: the claims as they are; changes nothing
function operations.look(line)
  local answer = { int(line.capacity) }
  for _, zset in ipairs({ line.holders, line.deadlines }) do
    for _, place in ipairs(all(line, redis.call('ZRANGEBYSCORE', zset, '(' .. int(now), '+inf'))) do
      local deadline = redis.call('ZSCORE', zset, place.id)
      answer[#answer + 1] = { int(place.weight), int(place.since), deadline, int(place.fence),
        redis.call('HGET', line.key, '@' .. place.id) }
    end
  end
  return answer
end

local arguments = { claim = 7, beat = 1, release = 2, evict = 2, look = 0 }

-- The same operation on each key, with its own arguments.
local what, each = ARGV[1], arguments[ARGV[1]]
local answers = { ARGV[2] }
for i, key in ipairs(KEYS) do
  local line = load(key)
  local from = 3 + (i - 1) * each
  answers[i + 1] = operations[what](line, unpack(ARGV, from, from + each - 1))
  if what ~= 'look' then save(line) end
end
publish()
return answers
