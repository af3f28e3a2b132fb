-- One who holds and one who waits, and they hand over to each other: `join` and `release` of line.lua on one string. What is
-- not that plain is left to those.

-- When the claim of the one who holds ends, when it asked, its fence. It was the last that was granted.
local HELD = '<ddd'
-- The same, then of the one who waits: when its claim ends, when it asked, where in the string it is, its channel.
local PAIR = '<ddddddI4c0'

-- What is here already. Who was granted its lock by a crowd finds a crowd: it releases, and looks at that first. Who
-- waited for one only leaves.
if what ~= 'release' then strings = redis.call('MGET', unpack(KEYS)) end
local waits = what ~= 'try'
if what == 'try' or what == 'ask' then what = 'claim' end
if what == 'leave' then what = 'release' end

-- A message that cannot be sent is repaired by the next heartbeat; the change itself is made.
local function publish(channel, message)
  redis.pcall(string.find(channel, '{', 1, true) and 'SPUBLISH' or 'PUBLISH', channel, message)
end

local function int(number)
  return string.format('%d', number)
end

local function is_pair(text)
  return string.byte(text) == 42
end

local function last_before(blocks)
  return TOP - blocks * BLOCK
end

local text = #KEYS == 1 and strings and strings[1]
if text and what == 'release' and is_pair(text) then
  local deadline, _, fence, ends, since, second, channel, id = struct.unpack('<ddddddI4c0s', text, 2)
  local granted = math.max(spent(fence, ARGV[4]), math.min(now, last_before(1))) + 1
  -- The string outlives who waits, so the new fences as well.
  if id == ARGV[3] and now < deadline and now < ends and granted + BLOCK <= ends then
    local following, _, _, _, session = struct.unpack(ASK, text, second)
    local held = '+' .. struct.pack(HELD, ends, since, granted) .. string.sub(text, second)
    -- A server without memory refuses this, not what line.lua does.
    if not redis.pcall('SET', KEYS[1], held, 'KEEPTTL').err then
      publish(channel, 'G ' .. following .. ' ' .. session .. ' ' .. int(granted) .. ' 0')
      return ARGV[2] .. ' released'
    end
  end
end

-- How a session listens is the first letter of its name: s for sharded channels, p for plain ones.
local function channel_of(key, session)
  local stem = string.sub(key, 1, string.find(key, '{', 1, true) - 1)
  if string.sub(session, 1, 1) == 's' then stem = string.sub(key, 1, string.find(key, '}', 1, true)) end
  return stem .. '!' .. string.match(session, '^[^.]*')
end

local function at(micros)
  return int(math.ceil(micros / 1000) + 1)
end

-- Keys end by themselves once every claim has ended and the clock has passed the last fence. Later than that by as
-- much again as there was to go, so that not every heartbeat has to move it.
local function expiry_of(need)
  return math.min(need + math.max(need - now, 0), TOP)
end

-- When the claim that holds was asked for, when it ends, its fence and where in the string it is; and of the one who waits,
-- if there is one, when it ends, when it was asked for and where it is.
local function opened(text)
  if is_pair(text) then
    local deadline, since, fence, ends, asked, second, _, begin = struct.unpack(PAIR, text, 2)
    return since, deadline, fence, begin, ends, asked, second
  end
  if string.byte(text) == 43 then
    local deadline, since, fence, begin = struct.unpack(HELD, text, 2)
    return since, deadline, fence, begin
  end
  local seconds, micros, begin = string.match(text, '^(%d+) (%d+) ()')
  local since = seconds * 1000000 + micros
  local _, lease = struct.unpack('<sd', text, begin)
  return since, since + lease, since + 1, begin
end

if text and what == 'claim' and waits and not is_pair(text) then
  local since, deadline, fence, begin = opened(text)
  local holder, _, taken, capacity, listens = struct.unpack(ASK, text, begin)
  local id, lease, weight, of, session = struct.unpack(ASK, ARGV[3])
  local last, ends = fence + BLOCK - 1, math.min(now + lease, TOP)
  local fits = taken + weight <= capacity
  if id ~= holder and now < deadline and not fits and weight > 0 and weight <= capacity and capacity == of
    and math.max(last, now) <= last_before(1) then
    local channel = channel_of(KEYS[1], session)
    local first = string.sub(text, begin)
    -- After the star, the numbers, the channel and the holder.
    local second = 1 + 6 * 8 + 4 + #channel + #first + 1
    local pair = '*' .. struct.pack(PAIR, deadline, since, fence, ends, now, second, #channel, channel) .. first .. ARGV[3]
    redis.call('SET', KEYS[1], pair, 'PXAT', at(expiry_of(math.max(deadline, ends, last + 1))))
    publish(channel_of(KEYS[1], listens), 'W ' .. holder .. ' ' .. listens)
    return ARGV[2] .. ' waiting 1 ' .. int(deadline - now)
  end
end
