-- Heartbeats and releases of those who are alone, many at once.

local function at(micros)
  return int(math.ceil(micros / 1000) + 1)
end

-- Keys end by themselves once every claim has ended and the clock has passed the last fence. Later than that by as
-- much again as there was to go, so that not every heartbeat has to move it.
local function expiry_of(need)
  return math.min(need + math.max(need - now, 0), TOP)
end

-- An idle name keeps its counter while that is ahead of the clock.
local function put_away(key, last)
  redis.call('DEL', key)
  if last >= now then
    redis.call('HSET', key, 'n', struct.pack(LINE, 0, last, 0, 0, 0, 0, 0, 0))
    redis.call('PEXPIREAT', key, at(last))
  end
end

-- When the claim of a string was asked for, when it ends, and where in the string it is.
local function opened(text)
  if string.sub(text, 1, 1) == '+' then
    local deadline, since, begin = struct.unpack('<dd', text, 2)
    return since, deadline, begin
  end
  local seconds, micros, begin = string.match(text, '^(%d+) (%d+) ()')
  local since = seconds * 1000000 + micros
  local _, lease = struct.unpack('<sd', text, begin)
  return since, since + lease, begin
end

-- By key, because one may be named twice.
local texts, answers = {}, { ARGV[2] }
strings = strings or redis.call('MGET', unpack(KEYS))
for i, text in ipairs(strings) do texts[KEYS[i]] = text end

if what == 'release' or what == 'beat' then
  local left, each = #KEYS, what == 'release' and 2 or 1
  for i, key in ipairs(KEYS) do
    local text, from = texts[key], 3 + (i - 1) * each
    if text then
      local since, deadline, begin = opened(text)
      local id, lease = struct.unpack('<sd', text, begin)
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
            texts[key] = '+' .. struct.pack('<dd', math.min(now + lease, TOP), since) .. string.sub(text, begin)
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
