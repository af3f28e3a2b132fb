-- The rule: claims are granted in order of arrival while their weights fit the capacity.

local function find(line, id)
  local claim = line.claims[id]
  if claim == nil then
    local found = redis.call('HGET', line.key, '=' .. id)
    claim = found and parse(id, found)
    line.claims[id] = claim
  end
  return claim
end

local function write(line, claim)
  line.claims[claim.id], line.written[claim.id], line.changed = claim, claim, true
end

local function fits(line, weight)
  return line.taken + weight <= line.capacity
end

local function wanted(line)
  return line.waiting > 0 and 1 or 0
end

-- In order of arrival: grants go in order, so fences do too.
local function in_order(line, ids)
  local claims = {}
  for _, id in ipairs(ids) do claims[#claims + 1] = find(line, id) end
  table.sort(claims, function(a, b) return a.arrival < b.arrival end)
  return claims
end

local function holders(line, most)
  if line.held == 0 or most == 0 then return {} end
  return in_order(line, redis.call('ZRANGE', line.order, 0, math.min(line.held, most) - 1))
end

local function remove(line, claim)
  redis.call('ZREM', line.order, claim.id)
  redis.call('ZREM', line.deadlines, claim.id)
  redis.call('HDEL', line.key, '=' .. claim.id)
  if claim.fence > 0 then
    line.held, line.taken = line.held - 1, line.taken - claim.weight
  else
    line.waiting = line.waiting - 1
  end
  line.claims[claim.id], line.written[claim.id], line.changed = false, nil, true
end

-- Grants to a claim at the front. The deadline does not move: only its own session moves it.
local function grant(line, claim, waiters)
  local floor = math.min(now, last_before(waiters))
  claim.fence = math.max(line.last, floor) + 1
  line.last = claim.fence + BLOCK - 1
  line.held, line.taken = line.held + 1, line.taken + claim.weight
  write(line, claim)
end

-- Grants to waiters while they fit, never past one that does not; the asker is told by the answer.
local function promote(line, asker)
  local granted = {}
  while line.waiting > 0 and line.taken < line.capacity do
    if budget == 0 then
      -- The next call does as if a claim had ended.
      line.earliest, line.changed = 0, true
      break
    end
    local claim = find(line, redis.call('ZRANGE', line.order, line.held, line.held)[1])
    if not fits(line, claim.weight) then break end
    grant(line, claim, line.waiting)
    line.waiting, budget = line.waiting - 1, budget - 1
    granted[#granted + 1] = claim
  end
  for _, claim in ipairs(granted) do
    if claim.id ~= asker then tell(line, claim, 'G', ' ' .. int(claim.fence) .. ' ' .. wanted(line)) end
  end
end

-- Drops what has ended and grants to waiters that now fit. No claim that has ended is granted: a call that has used up its
-- budget grants nothing.
local function sweep(line, asker)
  if now < line.earliest or line.held + line.waiting == 0 then return end
  local ended = redis.call('ZRANGEBYSCORE', line.deadlines, '-inf', int(now), 'LIMIT', '0', int(budget))
  budget = budget - #ended
  for _, claim in ipairs(in_order(line, ended)) do
    remove(line, claim)
    if claim.id ~= asker then tell(line, claim, 'X') end
  end
  line.earliest = tonumber(redis.call('ZRANGE', line.deadlines, 0, 0, 'WITHSCORES')[2] or 0)
  line.changed = true
  promote(line, asker)
end

local function deadline_of(line, id)
  return tonumber(redis.call('ZSCORE', line.deadlines, id))
end

-- When the first of several holders ends. Holders are mostly among those that end soon; otherwise an earlier look does.
local function first_holder_ends(line)
  local soon = redis.call('ZRANGE', line.deadlines, 0, 49)
  for _, id in ipairs(soon) do
    if find(line, id).fence > 0 then return deadline_of(line, id) end
  end
  return deadline_of(line, soon[#soon])
end

-- When the claim before it may have ended; for the first waiter, when a holder may have.
local function look_again(line, ahead)
  if ahead == line.held and line.held > 1 then return first_holder_ends(line) end
  return deadline_of(line, redis.call('ZRANGE', line.order, ahead - 1, ahead - 1)[1])
end

local function standing(line, claim)
  if not claim then return { 'gone' } end
  if claim.fence > 0 then return { 'held', int(claim.fence), wanted(line) } end
  local ahead = claim.ahead or redis.call('ZRANK', line.order, claim.id)
  -- A line without a holder has work left for the next call.
  local look = ahead > 0 and look_again(line, ahead) or now
  return { 'waiting', ahead, int(math.max(look - now, 0)), int(now) }
end

-- The session of a claim is alive.
local function heard(line, claim)
  local deadline = math.min(now + claim.lease, TOP)
  -- First a write that needs no memory.
  redis.call('HDEL', line.key, '')
  redis.call('ZADD', line.deadlines, 'GT', int(deadline), claim.id)
  line.longest = math.max(line.longest, deadline)
end

local function join(line, claim)
  line.capacity = claim.capacity
  local ahead, first = line.held + line.waiting, line.waiting == 0
  local fit = first and fits(line, claim.weight)
  if first and not fit then
    -- Of a try too: a holder that only lingers gives up, and the next try gets in.
    for _, holder in ipairs(holders(line, budget)) do tell(line, holder, 'W') end
  end
  if not fit and not waits then return { 'busy' } end
  if ahead >= MOST then
    error('FULL ' .. int(MOST) .. ' claims hold this name or wait for it, the most there may be; claim it from fewer tasks', 0)
  end
  local deadline = math.min(now + claim.lease, TOP)
  -- Sets of an idle line are new: they have no end yet.
  if ahead == 0 then line.expiry, line.earliest = 0, deadline end
  line.arrivals, line.longest = line.arrivals + 1, deadline
  line.earliest = math.min(line.earliest, deadline)
  claim.arrival, claim.ahead = line.arrivals, ahead
  redis.call('ZADD', line.order, int(claim.arrival), claim.id)
  redis.call('ZADD', line.deadlines, int(deadline), claim.id)
  if fit then
    grant(line, claim, 1)
  else
    line.waiting = line.waiting + 1
    write(line, claim)
  end
  return standing(line, claim)
end

-- A claim that is in the line already. A holder with a smaller weight gives the difference back.
local function again(line, claim, asked)
  claim.lease = asked.lease
  heard(line, claim)
  local smaller = claim.fence > 0 and asked.weight < claim.weight
  if smaller then
    line.taken = line.taken - claim.weight + asked.weight
    claim.weight = asked.weight
  end
  write(line, claim)
  if smaller then promote(line, nil) end
  return standing(line, claim)
end

local operations = {}

-- claim: as ASK says, how many milliseconds a string of it is kept
function operations.claim(line, id, text)
  local _, lease, weight, capacity, session, rest = struct.unpack(ASK, text)
  sweep(line, id)
  if weight == 0 or weight > capacity then return { 'weight' } end
  if line.held + line.waiting > 0 and line.capacity ~= capacity then return { 'capacity', int(line.capacity) } end
  local asked = {
    id = id, session = session, weight = weight, capacity = capacity, lease = lease, since = now, fence = 0,
    who = string.sub(text, rest),
  }
  local claim = find(line, id)
  if claim then return again(line, claim, asked) end
  if math.max(line.last, now) > last_before(line.waiting + 1) then return { 'fences' } end
  return join(line, asked)
end

-- beat: id
function operations.beat(line, id)
  sweep(line, id)
  local claim = find(line, id)
  if claim then heard(line, claim) end
  return standing(line, claim)
end

-- release: id, how many fences of the block are spent. Answers with 1 if work is left for another call.
function operations.release(line, id, _, used)
  sweep(line, id)
  local claim = find(line, id)
  if not claim then return { 'gone', budget == 0 and 1 or nil } end
  remove(line, claim)
  if claim.fence > 0 and line.last == claim.fence + BLOCK - 1 then line.last = spent(claim.fence, used) end
  promote(line, nil)
  return { 'released', budget == 0 and 1 or nil }
end

-- evict: a fence or 0 for all, what to tell
function operations.evict(line, _, fence, why)
  sweep(line, nil)
  local answer = { 'evicted' }
  fence = tonumber(fence)
  for _, claim in ipairs(holders(line, MOST)) do
    if fence == 0 or (claim.fence <= fence and fence < claim.fence + BLOCK) then
      remove(line, claim)
      tell(line, claim, 'E', ' ' .. why)
      answer[#answer + 1] = int(claim.fence)
    end
  end
  promote(line, nil)
  return answer
end

-- look: the arrival after which to begin. Answers with the capacity, the arrival to go on after, and some claims.
function operations.look(line, _, after)
  local page = redis.call('ZRANGEBYSCORE', line.order, '(' .. after, '+inf', 'LIMIT', '0', int(budget))
  local answer = { int(line.capacity), '0' }
  for _, id in ipairs(page) do
    local claim, deadline = find(line, id), deadline_of(line, id)
    if deadline > now then
      answer[#answer + 1] = {
        int(claim.weight), int(claim.since), int(deadline), int(claim.fence), int(claim.lease), claim.who,
      }
    end
    if #page == budget then answer[2] = int(claim.arrival) end
  end
  return answer
end

local arguments = { claim = 2, beat = 1, release = 2, evict = 2, look = 1 }
local each = arguments[what]

-- Keys per line: all three, or the first alone.
local width = #KEYS == 1 and 1 or 3

local function operate(i)
  local line = { keys = { unpack(KEYS, i * width - width + 1, i * width) } }
  line.key, line.order, line.deadlines = unpack(line.keys)
  local first, second = unpack(ARGV, 3 + (i - 1) * each, 2 + i * each)
  local id = what == 'claim' and struct.unpack('<s', first) or first
  local text = redis.call('MGET', line.key)[1]
  local answer = text and alone(line, text, id, second)
  if answer then return answer end
  if not line.order and (what == 'beat' or what == 'release') and not redis.call('HMGET', line.key, 'n')[1] then
    return { 'gone' }
  end
  needs_all_keys(line)
  load(line, id)
  answer = operations[what](line, id, first, second)
  if what ~= 'look' then save(line) end
  return answer
end

-- The same operation on each line, with its own arguments. An error of one line costs the others nothing.
local answers = { ARGV[2] }
for i = 1, #KEYS / width do
  local done, answer = pcall(operate, i)
  if not done then
    local text = type(answer) == 'table' and answer.err or tostring(answer)
    answer = { err = (string.gsub(text, '^@?user_script: ?%d+: ?', 'ERR ')) }
  end
  answers[i + 1] = answer
end
-- A message that cannot be sent is made up for by the next heartbeat; the change itself is made.
for _, channel in ipairs(channels) do
  redis.pcall(string.find(channel, '{', 1, true) and 'SPUBLISH' or 'PUBLISH', channel, posts[channel])
end
return answers
