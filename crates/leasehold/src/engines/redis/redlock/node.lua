-- The operations of one node, in one script, so that one text is loaded and tested.
--
-- KEYS[1]   PREFIX!run            which run of the server this is, and when it began: "RUN MICROS"
-- then two keys for each name:
--           PREFIX{BUCKET}:NAME   hash  l last fence, x expiry, q arrivals;
--                                       of the holder  i id, f fence (0 until confirmed), s session, o who, b since,
--                                       u until, e lease;  of each waiter  =ID  until since session  and  @ID  who
--           PREFIX{BUCKET}wNAME   zset  waiters in order of arrival
-- Times are microseconds of the server's clock; every number stays below 2^53.
-- ARGV: what to do, a mark that comes back first, the run the caller is connected to, how many seconds it had been up
-- then, the longest lease in microseconds; then the arguments for each key.

local BLOCK = 256
-- Keys outlive what they are kept for by this, in microseconds: no expiry is past by the time the server compares it with
-- its clock.
local MARGIN = 5000000
-- How many waiters a name has at most on one node.
local MOST = 20000

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local function int(number)
  return string.format('%.0f', number)
end

-- A server that has just begun may have forgotten its votes. It votes again once those are over. One that
-- remembers another run may have forgotten only a little; how long it has been up says nothing then.
local function votes_in(run, up, longest)
  local known, began = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%d+)$')
  if known ~= run then
    began = known and now or now - tonumber(up) * 1000000
    redis.call('SET', KEYS[1], run .. ' ' .. int(began))
  end
  return tonumber(began) + tonumber(longest) - now
end

local function post(prefix, session, message)
  local box = string.match(session, '^[^.]*')
  -- A message that cannot be sent is made up for by the next look; the change itself is made.
  redis.pcall('PUBLISH', prefix .. '!' .. box, message)
end

local function load(key, waiters)
  local open = string.find(key, '{', 1, true)
  local found = redis.call('HMGET', key, 'l', 'x', 'q', 'i', 'f', 's', 'u')
  local line = {
    key = key, prefix = string.sub(key, 1, open - 1), waiters = waiters,
    last = tonumber(found[1] or 0), expiry = tonumber(found[2] or 0), arrivals = tonumber(found[3] or 0),
  }
  if found[4] and tonumber(found[7]) > now then
    line.holder = { id = found[4], fence = tonumber(found[5]), session = found[6], till = tonumber(found[7]) }
  end
  return line
end

local function waiter(line, id)
  local found = redis.call('HGET', line.key, '=' .. id)
  if not found then return nil end
  local till, since, session = string.match(found, '^(%d+) (%d+) (.*)$')
  return { id = id, till = tonumber(till), since = since, session = session }
end

local function leave(line, id)
  redis.call('ZREM', line.waiters, id)
  redis.call('HDEL', line.key, '=' .. id, '@' .. id)
end

-- The waiter that came first and is alive.
local function front(line)
  while true do
    local id = redis.call('ZRANGE', line.waiters, 0, 0)[1]
    if not id then return nil end
    local first = waiter(line, id)
    if first and first.till > now then return first end
    leave(line, id)
  end
end

-- Keys end by themselves: nothing is kept of an idle name but its last fence, and that only while it is ahead of the clock.
local function keep(line, till)
  till = math.max(till, line.last + 1)
  if till > line.expiry then
    line.expiry = till
    redis.call('HSET', line.key, 'x', int(till))
  end
  local at = int(math.ceil((line.expiry + MARGIN) / 1000))
  redis.call('PEXPIREAT', line.key, at)
  redis.call('PEXPIREAT', line.waiters, at)
end

local function take(line, id, session, who, lease, fence)
  leave(line, id)
  local since = line.holder and {} or { 'b', int(now) }
  -- A shorter lease takes nothing back: the session trusts every answer it got.
  local till = math.max(now + lease, line.holder and line.holder.till or 0)
  redis.call('HSET', line.key, 'l', int(line.last), 'i', id, 'f', int(fence), 's', session, 'o', who,
    'u', int(till), 'e', int(lease), unpack(since))
  line.holder = { id = id, fence = fence, session = session, till = till }
  keep(line, till)
end

local function free(line)
  redis.call('HDEL', line.key, 'i', 'f', 's', 'o', 'b', 'u', 'e')
  line.holder = nil
  if not front(line) then
    redis.call('DEL', line.key, line.waiters)
    if line.last >= now then
      redis.call('HSET', line.key, 'l', int(line.last), 'x', int(line.last))
      redis.call('PEXPIREAT', line.key, int(math.ceil(line.last / 1000) + 1))
    end
  end
end

-- Tells the one in front that it may be worth trying now.
local function hint(line)
  local first = front(line)
  if first then post(line.prefix, first.session, 'F ' .. first.id .. ' ' .. first.session) end
end

local function wait(line, id, session, who, lease)
  local known = waiter(line, id)
  if not known then
    if redis.call('ZCARD', line.waiters) >= MOST then
      error('FULL ' .. int(MOST) .. ' claims wait for this name, the most there may be; claim it from fewer tasks', 0)
    end
    line.arrivals = line.arrivals + 1
    redis.call('ZADD', line.waiters, int(line.arrivals), id)
    redis.call('HSET', line.key, 'q', int(line.arrivals), '@' .. id, who)
  end
  local since = known and known.since or int(now)
  redis.call('HSET', line.key, '=' .. id, int(now + lease) .. ' ' .. since .. ' ' .. session)
  keep(line, now + lease)
end

local function mine(line, id)
  return line.holder and line.holder.id == id
end

local operations = {}

-- claim: id, session, who, lease, 1 if it waits.
function operations.claim(line, votes, id, session, who, lease, waits)
  if votes > 0 then return { 'new', int(votes) } end
  lease = tonumber(lease)
  if line.holder and not mine(line, id) then
    if not front(line) then
      post(line.prefix, line.holder.session, 'W ' .. line.holder.id .. ' ' .. line.holder.session)
    end
    if waits == '1' then wait(line, id, session, who, lease) end
    return { 'busy', int(line.holder.till - now), line.holder.fence > 0 and 1 or 0 }
  end
  local first = math.max(line.last, now) + 1
  line.last = first + BLOCK - 1
  take(line, id, session, who, lease, 0)
  return { 'ok', int(first) }
end

-- confirm: id, fence. Counts only where the claim still holds: so no two grants have the same fence.
function operations.confirm(line, votes, id, fence)
  if votes > 0 then return { 'new', int(votes) } end
  if not mine(line, id) then return { 'gone' } end
  fence = tonumber(fence)
  line.last = math.max(line.last, fence + BLOCK - 1)
  redis.call('HSET', line.key, 'l', int(line.last), 'f', int(fence))
  keep(line, line.holder.till)
  return { 'held', front(line) and 1 or 0 }
end

-- beat: id, session, who, lease, fence. A holder takes a node without a holder.
function operations.beat(line, votes, id, session, who, lease, fence)
  if votes > 0 then return { 'new', int(votes) } end
  lease, fence = tonumber(lease), tonumber(fence)
  if line.holder and not mine(line, id) then return { 'gone' } end
  line.last = math.max(line.last, fence + BLOCK - 1)
  take(line, id, session, who, lease, fence)
  return { 'held', front(line) and 1 or 0 }
end

-- release: id
function operations.release(line, _, id)
  if mine(line, id) then
    free(line)
    hint(line)
    return { 'released' }
  end
  local known = waiter(line, id)
  if known then leave(line, id) end
  if not line.holder then free(line) end
  return { known and known.till > now and 'released' or 'gone' }
end

-- yield: id, session, who, lease, 1 if it waits. Gives back a vote without a majority; the claim tries again later.
function operations.yield(line, votes, id, session, who, lease, waits)
  if mine(line, id) then free(line) end
  if waits == '1' and votes <= 0 then wait(line, id, session, who, tonumber(lease)) end
  return { 'ok' }
end

-- evict: a fence or 0 for all, what to tell
function operations.evict(line, _, fence, why)
  fence = tonumber(fence)
  local holder = line.holder
  if not holder or (fence > 0 and (fence < holder.fence or fence >= holder.fence + BLOCK)) then return { 'none' } end
  free(line)
  post(line.prefix, holder.session, 'E ' .. holder.id .. ' ' .. holder.session .. ' ' .. why)
  hint(line)
  return { 'evicted', holder.id, int(holder.fence) }
end

-- look: the claims as they are; changes nothing
function operations.look(line)
  local answer = { 'look' }
  if line.holder then
    local more = redis.call('HMGET', line.key, 'b', 'e', 'o')
    answer[2] = { line.holder.id, int(line.holder.fence), more[1], int(line.holder.till), more[2] or '0', more[3] }
  end
  for _, id in ipairs(redis.call('ZRANGE', line.waiters, 0, -1)) do
    local one = waiter(line, id)
    if one and one.till > now then
      answer[#answer + 1] = { id, '-1', one.since, int(one.till), '0', redis.call('HGET', line.key, '@' .. id) }
    end
  end
  return answer
end

local arguments = { claim = 5, confirm = 2, beat = 5, release = 1, yield = 5, evict = 2, look = 0 }

local what, each = ARGV[1], arguments[ARGV[1]]
local answers = { ARGV[2] }
local votes = what == 'look' and 0 or votes_in(ARGV[3], ARGV[4], ARGV[5])
for i = 1, (#KEYS - 1) / 2 do
  local from = 6 + (i - 1) * each
  -- An error of one name costs the others nothing.
  local done, answer = pcall(function()
    local line = load(KEYS[2 * i], KEYS[2 * i + 1])
    return operations[what](line, votes, unpack(ARGV, from, from + each - 1))
  end)
  if not done then
    local text = type(answer) == 'table' and answer.err or tostring(answer)
    answer = { err = (string.gsub(text, '^@?user_script: ?%d+: ?', 'ERR ')) }
  end
  answers[i + 1] = answer
end
return answers
