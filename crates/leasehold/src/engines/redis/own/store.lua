-- How a line is kept in its keys: what every operation that alone.lua has not done reads, writes and tells.

local BLOCK = 256
local TOP = 9007199254740991
-- How many claims a line has at most.
local MOST = 20000
-- How many claims a call ends, grants or tells at most: the server does nothing else meanwhile. The next call goes on.
local budget = 500
-- Keys outlive what they are kept for by at least MARGIN, and are kept longer once less than SLACK of that is left: no
-- expiry that a call sets can be past by the time the server compares it with its clock. In microseconds.
local MARGIN, SLACK = 5000000, 2000000
-- A claim as it is asked for: id, lease, weight, capacity, session, and the claiming process.
local ASK = '<sddds'
-- Of a claim that is alone: when it ends, when it was made, its fence.
local HELD = '<ddd'
-- capacity, last fence, weight taken, holders, waiters, arrivals, expiry, no claim ends before
local LINE = '<dddddddd'
-- weight, lease, since, arrival, fence, session
local CLAIM = '<ddddds'

local waits = what ~= 'try'
if what == 'try' or what == 'ask' then what = 'claim' end

local posts, channels = {}, {}

-- Of a number that is whole.
local function int(number)
  return string.format('%d', number)
end

-- Tells the process of a claim what happened to it: all of one call in one message. The first letter of a session says how
-- its process listens: s on sharded channels, p on plain ones.
local function tell(line, claim, letter, rest)
  local session = claim.session
  local stem = string.match(line.key, string.sub(session, 1, 1) == 's' and '^[^{]*{[^}]*}' or '^[^{]*')
  local channel = stem .. '!' .. string.match(session, '^[^.]*')
  local message = letter .. ' ' .. claim.id .. ' ' .. session .. (rest or '')
  if posts[channel] then
    posts[channel] = posts[channel] .. '\n' .. message
  else
    posts[channel] = message
    channels[#channels + 1] = channel
  end
end

-- The time of the server's clock, in the milliseconds of its expiries.
local function at(micros)
  return int(math.ceil(micros / 1000) + 1)
end

-- As much longer again as there is to go, so that not every heartbeat has to move it.
local function expiry_of(need)
  return math.min(need + math.max(need - now, MARGIN), TOP)
end

-- The largest fence that may be spent before this many blocks are still to come.
local function last_before(blocks)
  return TOP - blocks * BLOCK
end

-- The last fence that a block has used up: the rest of the last block can be given out again.
local function spent(fence, used)
  return fence + math.min(math.max(used, 1), BLOCK) - 1
end

-- An idle name keeps its counter while that is ahead of the clock. The call may go on and read it, so its end too is well
-- ahead: the server's clock moves on while the script's stands still.
local function put_away(line, last)
  redis.call('DEL', unpack(line.keys))
  if last >= now then
    redis.call('HSET', line.key, 'n', struct.pack(LINE, 0, last, 0, 0, 0, 0, 0, 0))
    redis.call('PEXPIREAT', line.key, at(last + MARGIN))
  end
end

local function keep_until(line, expiry)
  line.expiry = expiry
  for _, key in ipairs(line.keys) do redis.call('PEXPIREAT', key, at(expiry)) end
end

-- When the claim of a string was made, when it ends, its fence and where in the string it is.
local function opened(text)
  if string.byte(text) == 43 then
    local deadline, since, fence, begin = struct.unpack(HELD, text, 2)
    return since, deadline, fence, begin
  end
  local seconds, micros, begin = string.match(text, '^(%d+) (%d+) ()')
  if not begin then error('ERR the key of this name holds a value of another program; move it, or use another prefix', 0) end
  local since = seconds * 1000000 + micros
  local _, lease = struct.unpack('<sd', text, begin)
  return since, since + lease, since + 1, begin
end

-- A slot that moves to another server refuses a call that names a key which is not there: the client then names the first
-- key of a line alone. That is enough for a line with one claim or none.
local function needs_all_keys(line)
  if not line.order then error('TRYAGAIN the slot of this name moves to another server', 0) end
end

-- Makes of the string the keys of a line with several claims.
local function unfold(line, text, asker)
  needs_all_keys(line)
  local since, deadline, fence, begin = opened(text)
  local id, lease, weight, capacity, session, rest = struct.unpack(ASK, text, begin)
  local last = fence + BLOCK - 1
  local expiry = expiry_of(math.max(deadline, last + 1))
  -- A server without memory refuses newcomers, and only them: it lets a call go on that has begun with a write which needs
  -- none.
  if what ~= 'claim' or id == asker then redis.call('PEXPIREAT', line.key, at(expiry)) end
  if redis.call('ZCARD', line.order) + redis.call('ZCARD', line.deadlines) > 0 then
    redis.call('DEL', line.order, line.deadlines)
  end
  redis.call('ZADD', line.order, '1', id)
  redis.call('ZADD', line.deadlines, int(deadline), id)
  redis.call('DEL', line.key)
  redis.call('HSET', line.key,
    'n', struct.pack(LINE, capacity, last, weight, 1, 0, 1, expiry, deadline),
    '=' .. id, struct.pack(CLAIM, weight, lease, since, 1, fence, session) .. string.sub(text, rest))
  keep_until(line, expiry)
end

-- Whether a try, which joins no line, finds no room beside a claim that is alone.
local function is_busy(taken, capacity)
  local _, _, weight, of = struct.unpack(ASK, ARGV[3])
  return of == capacity and weight > 0 and weight <= of and taken + weight > of
end

-- Answers from the string form of a line alone; nil once the line has become a hash.
local function alone(line, text, asker, used)
  local since, deadline, fence, begin = opened(text)
  local id, lease, weight, capacity, session, rest = struct.unpack(ASK, text, begin)
  if what == 'look' then
    local claim = { int(weight), int(since), int(deadline), int(fence), int(lease), string.sub(text, rest) }
    return { int(capacity), '0', deadline > now and asker == '0' and claim or nil }
  end
  if deadline <= now then
    put_away(line, fence + BLOCK - 1)
    if id ~= asker then tell(line, { id = id, session = session }, 'X') end
  elseif what == 'claim' and not waits and id ~= asker and is_busy(weight, capacity) then
    tell(line, { id = id, session = session }, 'W')
    return { 'busy' }
  elseif what == 'claim' or what == 'evict' then
    unfold(line, text, asker)
  elseif id == asker and what == 'release' then
    put_away(line, spent(fence, used))
    return { 'released' }
  elseif id == asker then
    if now + lease > deadline then
      deadline = math.min(now + lease, TOP)
      -- First a write that needs no memory, as above.
      redis.call('PEXPIREAT', line.key, at(expiry_of(math.max(deadline, fence + BLOCK))))
      redis.call('SET', line.key, '+' .. struct.pack(HELD, deadline, since, fence) .. string.sub(text, begin), 'KEEPTTL')
    end
    return { 'held', int(fence), '0' }
  end
  if what == 'beat' or what == 'release' then return { 'gone' } end
end

local function parse(id, text)
  local weight, lease, since, arrival, fence, session, rest = struct.unpack(CLAIM, text)
  return {
    id = id, weight = weight, lease = lease, since = since, arrival = arrival, fence = fence, session = session,
    who = string.sub(text, rest),
  }
end

-- Reads the numbers and the claim of the asker.
local function load(line, id)
  local found = redis.call('HMGET', line.key, 'n', '=' .. id)
  -- Claims as they are by now, false for those that are gone; and those to be written.
  line.claims, line.written, line.changed, line.longest = { [id] = found[2] and parse(id, found[2]) }, {}, false, 0
  line.capacity, line.last, line.taken, line.held, line.waiting, line.arrivals, line.expiry, line.earliest =
    struct.unpack(LINE, found[1] or struct.pack(LINE, 0, 0, 0, 0, 0, 0, 0, 0))
  local count = line.held + line.waiting
  if redis.call('ZCARD', line.order) ~= count or redis.call('ZCARD', line.deadlines) ~= count then
    -- A key was deleted by hand, or by a clock that went ahead and back: the claims are lost, the fences are not.
    put_away(line, line.last)
    line.taken, line.held, line.waiting, line.claims[id] = 0, 0, 0, false
  end
end

local function save(line)
  if line.held + line.waiting == 0 then
    if line.changed or (line.last ~= 0 and line.last < now) then put_away(line, line.last) end
    return
  end
  local need = math.max(line.longest, line.last + 1)
  local moves = need + SLACK > line.expiry
  if moves then line.expiry = expiry_of(need) end
  if line.changed or moves then
    local fields = {
      'n', struct.pack(LINE, line.capacity, line.last, line.taken, line.held, line.waiting, line.arrivals, line.expiry,
        line.earliest),
    }
    for id, claim in pairs(line.written) do
      fields[#fields + 1] = '=' .. id
      fields[#fields + 1] = struct.pack(CLAIM, claim.weight, claim.lease, claim.since, claim.arrival, claim.fence,
        claim.session) .. claim.who
    end
    redis.call('HSET', line.key, unpack(fields))
  end
  if moves then keep_until(line, line.expiry) end
end
