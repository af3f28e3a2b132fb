-- The rule of a line (line.rs), on the server. One script for every operation, so that one text is loaded and tested.
--
-- KEYS[i] is the line of a name: PREFIX{BUCKET}:NAME. While nobody has asked but the one who holds it, that is a
--   string  ID granted heard lease weight capacity session, and who asks on the lines after the first; the moments as
--           the server tells them, seconds and microseconds. The fence is the moment of the grant and one.
-- and as soon as somebody else asks, in the same slot:
--   PREFIX{BUCKET}:NAME  hash   n the numbers of the line, as LINE says; per claim  =ID  those of the claim, as CLAIM
--                               says, its session and who asks. Packed, because reading words costs more than the rest
--   PREFIX{BUCKET}wNAME  zset   claims in order of arrival: the first h of them hold, the others wait
--   PREFIX{BUCKET}dNAME  zset   claims by deadline
-- Times are microseconds of the server's clock; every number stays below 2^53.
-- ARGV[1] says what to do, ARGV[2] comes back first, so that an answer is never taken for that of another call. The
-- commonest answers are one string of words, the others a list of them for each key.

local BLOCK = 256
local TOP = 9007199254740991
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
-- claim on a name that nobody uses, and a heartbeat or the release of a lock that nobody else asks for. Words are put
-- together as they came, because writing numbers costs as much as storing them.
if what == 'claim' then
  local weight, capacity, lease = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
  if weight > 0 and weight <= capacity and now <= TOP - BLOCK then
    local moment = time[1] .. ' ' .. time[2]
    local text = ARGV[3] .. ' ' .. moment .. ' ' .. moment .. ' ' .. ARGV[7] .. ' ' .. ARGV[5] .. ' ' .. ARGV[6] .. ' '
      .. ARGV[4] .. '\n' .. ARGV[9]
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

-- Who is alone, with which fence, and until when.
local function read(text)
  local id, seconds, micros, heard, heard_micros, lease = string.match(text, '^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+)')
  return id, seconds * 1000000 + micros + 1, math.min(heard * 1000000 + heard_micros + lease, TOP)
end

local answers, left = { ARGV[2] }, #KEYS
local texts = {}
for i, text in ipairs(redis.call('MGET', unpack(KEYS))) do texts[KEYS[i]] = text end

local alone = {}

function alone.release(key, fence, _, used)
  put_away(key, spent(fence, used))
  texts[key] = false
  return { 'released' }
end

function alone.beat(key, fence, deadline)
  local granted, lease, rest = string.match(texts[key], '^(%S+ %d+ %d+) %d+ %d+ (%d+)(.*)$')
  local moment = time[1] .. ' ' .. time[2]
  if now + lease > deadline then
    -- A server without memory lets a script go on that has begun with a write which needs none.
    redis.call('PEXPIREAT', key, at(expiry_of(now + math.max(lease, BLOCK + 1))))
    texts[key] = granted .. ' ' .. moment .. ' ' .. lease .. rest
    redis.call('SET', key, texts[key], 'KEEPTTL')
  end
  return { 'held', int(fence), 0 }
end

if alone[what] then
  local each = what == 'release' and 2 or 1
  for i, key in ipairs(KEYS) do
    local text, from = texts[key], 3 + (i - 1) * each
    local id, fence, deadline
    if text then id, fence, deadline = read(text) end
    if id == ARGV[from] and deadline > now then
      answers[i + 1] = alone[what](key, fence, deadline, ARGV[from + 1])
      left = left - 1
    end
  end
  if left == 0 then
    if #KEYS == 1 then return ARGV[2] .. ' ' .. table.concat(answers[2], ' ') end
    return answers
  end
end
