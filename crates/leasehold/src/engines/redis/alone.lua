-- The rule of a line (line.rs), on the server. One script for every operation, so that one text is loaded and tested.
--
-- KEYS[i] is the line of a name: PREFIX{BUCKET}:NAME. While nobody has asked but the one who holds it, that is a
--   string  the claim, as ALONE says, and who asks. Its fence is the time of the claim and one.
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
-- deadline, lease, weight, capacity, since, id, session
local ALONE = '<dddddss'
-- capacity, last fence, weight taken, holders, waiters, arrivals, expiry, no claim ends before
local LINE = '<dddddddd'
-- weight, lease, since, arrival, fence, session
local CLAIM = '<ddddds'

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local what = ARGV[1]

local function int(number)
  return string.format('%d', number)
end

local function at(micros)
  return int(math.ceil(micros / 1000) + 1)
end

-- Keys end by themselves once every claim has ended and the clock has passed the last fence. Later than that by as
-- much again as there was to go, so that not every heartbeat has to move it.
local function expiry_of(need)
  return math.min(need + math.max(need - now, 0), TOP)
end

-- The commonest cases come first and leave early, because making the functions below costs more than doing them: a
-- claim on a name that nobody uses, and a heartbeat or the release of a lock that nobody else asks for.
if what == 'claim' then
  local weight, capacity, lease = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
  if weight > 0 and weight <= capacity and now <= TOP - BLOCK then
    local deadline = math.min(now + lease, TOP)
    local text = struct.pack(ALONE, deadline, lease, weight, capacity, now, ARGV[3], ARGV[4]) .. ARGV[9]
    local expiry = expiry_of(now + math.max(lease, BLOCK + 1))
    if redis.call('SET', KEYS[1], text, 'NX', 'PXAT', at(expiry)) then
      return ARGV[2] .. ' held ' .. int(now + 1) .. ' 0'
    end
  end
end

-- An idle name keeps its counter while that is ahead of the clock.
local function put_away(key, last)
  redis.call('DEL', key)
  if last >= now then
    redis.call('HSET', key, 'n', struct.pack(LINE, 0, last, 0, 0, 0, 0, 0, 0))
    redis.call('PEXPIREAT', key, at(last))
  end
end

-- What is given back of a block of fences can be given out again while it is the last.
local function spent(fence, used)
  return fence + math.min(math.max(tonumber(used), 1), BLOCK) - 1
end

-- The strings of those who are alone; of a hash there is none. By key, because one may be named twice.
local texts, answers = {}, { ARGV[2] }
for i, text in ipairs(redis.call('MGET', unpack(KEYS))) do texts[KEYS[i]] = text end

if what == 'release' or what == 'beat' then
  local left, each = #KEYS, what == 'release' and 2 or 1
  for i, key in ipairs(KEYS) do
    local text, from = texts[key], 3 + (i - 1) * each
    if text then
      local deadline, lease, weight, capacity, since, id, session, rest = struct.unpack(ALONE, text)
      if id == ARGV[from] and deadline > now then
        left = left - 1
        if what == 'release' then
          put_away(key, spent(since + 1, ARGV[from + 1]))
          texts[key] = false
          answers[i + 1] = { 'released' }
        else
          if now + lease > deadline then
            -- A server without memory lets a script go on that has begun with a write which needs none.
            redis.call('PEXPIREAT', key, at(expiry_of(now + math.max(lease, BLOCK + 1))))
            texts[key] = struct.pack(ALONE, math.min(now + lease, TOP), lease, weight, capacity, since, id, session)
              .. string.sub(text, rest)
            redis.call('SET', key, texts[key], 'KEEPTTL')
          end
          answers[i + 1] = { 'held', int(since + 1), '0' }
        end
      end
    end
  end
  if left == 0 then
    if #KEYS == 1 then return ARGV[2] .. ' ' .. table.concat(answers[2], ' ') end
    return answers
  end
end
