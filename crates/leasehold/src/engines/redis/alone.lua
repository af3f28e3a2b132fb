-- The rule of a line (line.rs), on the server. One script for every operation, so that one text is loaded and tested.
--
-- KEYS[i] is the line of a name: PREFIX{BUCKET}:NAME. While nobody has asked but the one who holds it, that is a
--   string  ID deadline expiry fence weight capacity lease session, and who asks on the lines after the first
-- and as soon as somebody else asks, in the same slot:
--   PREFIX{BUCKET}:NAME  hash   c capacity, l last fence, t weight taken, h holders, w waiters, q arrivals, x expiry,
--                               e no claim ends before; per claim  =ID  weight lease since arrival fence session
--                               and  @ID  who asks
--   PREFIX{BUCKET}wNAME  zset   claims in order of arrival: the first h of them hold, the others wait
--   PREFIX{BUCKET}dNAME  zset   claims by deadline
-- Times are microseconds of the server's clock; every number stays below 2^53.
-- ARGV[1] says what to do, ARGV[2] comes back first, so that an answer is never taken for that of another call.

local BLOCK = 256
local TOP = 9007199254740991

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
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
  local weight, capacity = tonumber(ARGV[5]), tonumber(ARGV[6])
  if weight > 0 and weight <= capacity and now <= TOP - BLOCK then
    local fence, deadline = now + 1, math.min(now + tonumber(ARGV[7]), TOP)
    local expiry = expiry_of(math.max(deadline, fence + BLOCK))
    local text = string.format('%s %d %d %d %s %s %s %s\n%s', ARGV[3], deadline, expiry, fence, ARGV[5], ARGV[6],
      ARGV[7], ARGV[4], ARGV[9])
    if redis.call('SET', KEYS[1], text, 'NX', 'PXAT', at(expiry)) then
      return { ARGV[2], { 'held', int(fence), 0 } }
    end
  end
end

-- An idle name keeps its counter while that is ahead of the clock.
local function put_away(key, last)
  redis.call('DEL', key)
  if last >= now then
    redis.call('HSET', key, 'l', int(last))
    redis.call('PEXPIREAT', key, at(last))
  end
end

-- What is given back of a block of fences can be given out again while it is the last.
local function spent(fence, used)
  return fence + math.min(math.max(tonumber(used), 1), BLOCK) - 1
end

local answers, left = { ARGV[2] }, #KEYS
local texts = {}
for i, text in ipairs(redis.call('MGET', unpack(KEYS))) do texts[KEYS[i]] = text end

local alone = {}

function alone.release(key, _, fence, _, used)
  put_away(key, spent(tonumber(fence), used))
  texts[key] = false
  return { 'released' }
end

function alone.beat(key, id, fence, expiry, _, rest)
  local lease = tonumber(string.match(rest, '^%d+ %d+ (%d+)'))
  local before = string.match(texts[key], '^%S+ (%d+)')
  local deadline = math.max(tonumber(before), math.min(now + lease, TOP))
  expiry = tonumber(expiry)
  if deadline > expiry then expiry = expiry_of(deadline) end
  -- A server without memory lets a script go on that has begun with a write which needs none.
  redis.call('PEXPIREAT', key, at(expiry))
  texts[key] = string.format('%s %d %d %s %s', id, deadline, expiry, fence, rest)
  redis.call('SET', key, texts[key], 'KEEPTTL')
  return { 'held', fence, 0 }
end

if alone[what] then
  local each = what == 'release' and 2 or 1
  for i, key in ipairs(KEYS) do
    local text, from = texts[key], 3 + (i - 1) * each
    local id, deadline, expiry, fence, rest
    if text then id, deadline, expiry, fence, rest = string.match(text, '^(%S+) (%d+) (%d+) (%d+) (.*)$') end
    if id == ARGV[from] and tonumber(deadline) > now then
      answers[i + 1] = alone[what](key, id, fence, expiry, ARGV[from + 1], rest)
      left = left - 1
    end
  end
  if left == 0 then return answers end
end
