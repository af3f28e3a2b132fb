-- The rule of a line (line.rs), on the server. One script for every operation, so that one text is loaded and tested.
--
-- KEYS[i] is the line of a name: PREFIX{BUCKET}:NAME. While nobody has asked but the one who holds it, that is a
--   string  when it ends, when it asked, and the claim as it was asked for. Its fence is the time it asked and one.
-- and as soon as somebody else asks, in the same slot:
--   PREFIX{BUCKET}:NAME  hash   n  the numbers of the line, as LINE says
--                               =ID  a claim, as CLAIM says, and who asks
--   PREFIX{BUCKET}wNAME  zset   claims in order of arrival: holders first, then those who wait
--   PREFIX{BUCKET}dNAME  zset   claims by deadline
-- Numbers are packed, because reading and writing words costs more than the rest. Times are microseconds of the
-- server's clock; every number stays below 2^53.
-- ARGV[1] says what to do, ARGV[2] comes back first, so that an answer is never taken for that of another call. The
-- commonest answers are one string of words, the others a list of them for each key.

local BLOCK = 256
local TOP = 9007199254740991
-- A claim as it is asked for: id, lease, weight, capacity, session, and who asks.
local ASK = '<sddds'
-- deadline, since, and the claim as it was asked for
local ALONE = '<ddsddds'
-- capacity, last fence, weight taken, holders, waiters, arrivals, expiry, no claim ends before
local LINE = '<dddddddd'
-- weight, lease, since, arrival, fence, session
local CLAIM = '<ddddds'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local what = ARGV[1]

-- What is given back of a block of fences can be given out again while it is the last.
local function spent(fence, used)
  return fence + math.min(math.max(used, 1), BLOCK) - 1
end

-- The commonest cases come first and leave early, because making the functions below costs more than doing them: a
-- claim on a name that nobody uses, and the release of a lock that nobody else asks for.
if what == 'claim' then
  local _, lease, weight, capacity = struct.unpack(ASK, ARGV[3])
  local deadline = now + lease
  if weight > 0 and weight <= capacity and deadline <= TOP - BLOCK then
    local text = struct.pack('<dd', deadline, now) .. ARGV[3]
    if redis.call('SET', KEYS[1], text, 'NX', 'PX', ARGV[4]) then
      return ARGV[2] .. string.format(' held %d 0', now + 1)
    end
  end
end

-- The strings of those who are alone; of a hash there is none.
local strings = redis.call('MGET', unpack(KEYS))

if what == 'release' and #KEYS == 1 and strings[1] then
  local deadline, since, id = struct.unpack('<dds', strings[1])
  if id == ARGV[3] and deadline > now and spent(since + 1, ARGV[4]) < now then
    redis.call('DEL', KEYS[1])
    return ARGV[2] .. ' released'
  end
end
