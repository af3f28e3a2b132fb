-- The rule of a line (line.rs), on the server. alone.lua, store.lua and line.lua make one script, so that one
-- text is loaded and tested.
--
-- A line has three keys, all given in KEYS, in this order for each line of a call:
--   PREFIX{BUCKET}:NAME  while one claim is alone in the line, a string: the seconds and microseconds when it was made and
--                        the claim as ASK says; its fence is that time and one. A heartbeat makes of it a plus sign, what
--                        HELD says, and the claim.
--                        With more claims, a hash: n, the numbers of the line as LINE says, and =ID, a claim as CLAIM says
--                        and its process. Of an idle line only n, while its last fence is ahead of the clock.
--   PREFIX{BUCKET}wNAME  zset: claims in order of arrival; holders first, then waiters
--   PREFIX{BUCKET}dNAME  zset: claims by deadline
-- Numbers are packed: reading and writing words costs more than the rest. Times are microseconds of the server's clock;
-- every number stays below 2^53.
-- ARGV[1] says what to do, ARGV[2] comes back first, so that an answer is never taken for that of another call. alone.lua
-- answers with one string of words, line.lua with a list of words for each line.

local time = redis.call('TIME')
local what = ARGV[1]

-- Common cases return early: defining the helpers of line.lua costs more than the work. Numbers stay texts here for the
-- same reason.

-- claim (waits) and try (does not): the claim as ASK says, how many milliseconds the string is kept. The weight fits the
-- capacity; a claim whose weight does not is sent as `ask`. From the year 2191 on line.lua does all the work.
if (what == 'claim' or what == 'try') and time[1] < '7' and #time[1] < 11 then
  local text = time[1] .. ' ' .. time[2] .. ' ' .. ARGV[3]
  if redis.call('SET', KEYS[1], text, 'NX', 'PX', ARGV[4]) then
    return ARGV[2] .. ' alone ' .. time[1] .. ' ' .. time[2]
  end
end

local now = time[1] * 1000000 + time[2]

-- free: the string up to the claim's id; the last fence that is spent and when the claim ends, packed. It is the release of
-- a claim that was alone when it was granted.
if what == 'free' then
  local text = redis.call('MGET', KEYS[1])[1]
  local last, ends = struct.unpack('<dd', ARGV[4])
  if text and now > last and now < ends and string.sub(text, 1, #ARGV[3]) == ARGV[3] then
    redis.call('DEL', KEYS[1])
    return ARGV[2] .. ' released'
  end
  local seconds, micros, id = string.match(ARGV[3], '^(%d+) (%d+) (.*)$')
  what, ARGV[3], ARGV[4] = 'release', id, last - (seconds * 1000000 + micros)
end
