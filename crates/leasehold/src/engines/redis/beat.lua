-- Heartbeats and releases of those who are alone, many at once.

-- An idle name keeps its counter while that is ahead of the clock.
local function put_away(key, last)
  redis.call('DEL', key)
  if last >= now then
    redis.call('HSET', key, 'n', struct.pack(LINE, 0, last, 0, 0, 0, 0, 0, 0))
    redis.call('PEXPIREAT', key, at(last))
  end
end

-- By key, because one may be named twice.
local texts, answers = {}, { ARGV[2] }
strings = strings or redis.call('MGET', unpack(KEYS))
for i, text in ipairs(strings) do texts[KEYS[i]] = text end

if what == 'release' or what == 'beat' then
  local left, each = #KEYS, what == 'release' and 2 or 1
  for i, key in ipairs(KEYS) do
    local text, from = texts[key], 3 + (i - 1) * each
    if text and not is_pair(text) then
      local since, deadline, fence, begin = opened(text)
      local id, lease = struct.unpack('<sd', text, begin)
      if id == ARGV[from] and deadline > now then
        left = left - 1
        if what == 'release' then
          put_away(key, spent(fence, ARGV[from + 1]))
          texts[key] = false
          answers[i + 1] = { 'released' }
        else
          if now + lease > deadline then
            -- A server without memory lets a script go on that has begun with a write which needs none.
            redis.call('PEXPIREAT', key, at(expiry_of(now + math.max(lease, BLOCK + 1))))
            texts[key] = '+' .. struct.pack(HELD, math.min(now + lease, TOP), since, fence) .. string.sub(text, begin)
            redis.call('SET', key, texts[key], 'KEEPTTL')
          end
          answers[i + 1] = { 'held', int(fence), '0' }
        end
      end
    end
  end
  if left == 0 then
    if #KEYS == 1 then return ARGV[2] .. ' ' .. table.concat(answers[2], ' ') end
    return answers
  end
end
