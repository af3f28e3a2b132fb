-- The rule of a line (line.rs), on the server. One script for every operation, so that one text is loaded and tested.
--
-- KEYS[i] is the line of a name: PREFIX{BUCKET}:NAME. While nobody has asked but the one who holds it, that is a
--   string  the seconds and microseconds when it asked, and the claim as it was asked for. Its fence is that time and
--           one. A heartbeat makes of it a plus sign, what HELD says, and the claim.
-- While one more waits it is a
--   string  a star, what PAIR says, the claim of the holder and that of the one who waits
-- and as soon as more happens than that the one hands over to the other, in the same slot:
--   PREFIX{BUCKET}:NAME  hash   n  the numbers of the line, as LINE says
--                               =ID  a claim, as CLAIM says, and who asks
--   PREFIX{BUCKET}wNAME  zset   claims in order of arrival: holders first, then those who wait
--   PREFIX{BUCKET}dNAME  zset   claims by deadline
-- Numbers are packed, because reading and writing words costs more than the rest. Times are microseconds of the
-- server's clock; every number stays below 2^53.
-- ARGV[1] says what to do, ARGV[2] comes back first, so that an answer is never taken for that of another call. The
-- commonest answers are one string of words, the others a list of them for each key.

local time = redis.call('TIME')
local what = ARGV[1]

-- The commonest cases come first and leave early, because making what is below costs more than doing it: a claim on a name
-- that nobody uses, and the release of a lock that nobody else asks for. Texts stay texts there: to read and to write
-- numbers costs more than the rest.

-- claim, of one who waits, and try, of one who does not: as ASK says, how many milliseconds the string is kept. Both fit
-- their line; what does not is to ask, and is refused. Before the year 2191 no time gets too large to count.
if (what == 'claim' or what == 'try') and time[1] < '7' and #time[1] < 11 then
  local text = time[1] .. ' ' .. time[2] .. ' ' .. ARGV[3]
  if redis.call('SET', KEYS[1], text, 'NX', 'PX', ARGV[4]) then
    return ARGV[2] .. ' alone ' .. time[1] .. ' ' .. time[2]
  end
end

local BLOCK = 256
local TOP = 9007199254740991
-- A claim as it is asked for: id, lease, weight, capacity, session, and who asks.
local ASK = '<sddds'
-- capacity, last fence, weight taken, holders, waiters, arrivals, expiry, no claim ends before
local LINE = '<dddddddd'
-- weight, lease, since, arrival, fence, session
local CLAIM = '<ddddds'

local now = time[1] * 1000000 + time[2]
-- The strings of those who are alone, once they are read; of a hash there is none.
local strings

-- free: the string up to the claim's id; the last fence that is spent and when the claim ends, packed. It is the release of
-- one who was alone when the lock was granted, and still may be.
if what == 'free' then
  strings = redis.call('MGET', KEYS[1])
  local last, ends = struct.unpack('<dd', ARGV[4])
  if strings[1] and now > last and now < ends and string.sub(strings[1], 1, #ARGV[3]) == ARGV[3] then
    redis.call('DEL', KEYS[1])
    return ARGV[2] .. ' released'
  end
  local seconds, micros, id = string.match(ARGV[3], '^(%d+) (%d+) (.*)$')
  what, ARGV[3], ARGV[4] = 'release', id, last - (seconds * 1000000 + micros)
end

-- What is given back of a block of fences can be given out again while it is the last.
local function spent(fence, used)
  return fence + math.min(math.max(used, 1), BLOCK) - 1
end
