-- RReadWriteLock: hash NAME {mode = read | write, owner = reads, owner:write = writes}, with a TTL, and for every read
-- a key STEM:owner:rwlock_timeout:i with the TTL of that read. KEYS: name, ours, channel, stem. ARGV: who, 1 if it
-- waits, read | write.
-- Readers publish 0 (wake one waiter per process), writers 1 (wake all).

local WRITE = 4294967295

local function timeout_key(id, i)
  return KEYS[4] .. ':' .. id .. ':rwlock_timeout:' .. i
end

local function mode()
  return redis.call('HGET', name, 'mode')
end

local function lengthen(millis_more)
  if redis.call('PTTL', name) < millis_more then redis.call('PEXPIRE', name, int(millis_more)) end
end

local function add_read()
  redis.call('HSET', name, 'mode', 'read', owner, 1)
  redis.call('SET', timeout_key(owner, 1), 1, 'PX', int(lease))
  lengthen(lease)
end

-- The longest that any reader has left.
local function longest_read()
  local longest, all = 0, redis.call('HGETALL', name)
  for i = 1, #all, 2 do
    for n = tonumber(all[i + 1]) or 0, 1, -1 do
      longest = math.max(longest, redis.call('PTTL', timeout_key(all[i], n)))
    end
  end
  return longest
end

-- Reads have ended: the lock lives as long as the longest that is left.
local function settle_reads()
  local left = longest_read()
  if left > 0 then
    redis.call('PEXPIRE', name, int(left))
  elseif mode() ~= 'write' then
    redis.call('DEL', name)
    publish(KEYS[3], 0)
  end
end

local function end_read(id)
  redis.call('HDEL', name, id)
  redis.call('DEL', timeout_key(id, 1))
end

local function drop_read(id)
  end_read(id)
  settle_reads()
end

local function drop_write(id)
  redis.call('HDEL', name, id .. ':write')
  if redis.call('HLEN', name) == 1 then redis.call('DEL', name) else redis.call('HSET', name, 'mode', 'read') end
  publish(KEYS[3], 1)
end

local function renew_write()
  if redis.call('HEXISTS', name, owner .. ':write') == 0 then return nil end
  lengthen(lease)
  return renewed()
end

local function renew_read()
  if redis.call('HEXISTS', name, owner) == 0 then return nil end
  -- Its own key is what others look at: without it the read has ended.
  if redis.call('PEXPIRE', timeout_key(owner, 1), int(lease)) == 0 then
    drop_read(owner)
    forget(owner)
    return nil
  end
  lengthen(lease)
  return renewed()
end

-- The writer becomes a reader. Redisson publishes nothing here, and readers sleep until the TTL: we do.
local function downgrade()
  local place = note(owner)
  redis.call('HDEL', name, owner .. ':write')
  add_read()
  place.weight = 1
  write(owner, place)
  publish(KEYS[3], 1)
  return renewed()
end

local function claim_read()
  if redis.call('HEXISTS', name, owner .. ':write') == 1 and note(owner) then return downgrade() end
  local again = renew_read()
  if again then return again end
  if mode() == 'write' then return { 'busy', redis.call('PTTL', name) } end
  if mode() then sweep() else forget_all() end
  local refused = full(redis.call('HLEN', name))
  if refused then return refused end
  add_read()
  return granted(1, ARGV[6])
end

local function claim_write()
  local again = renew_write()
  if again then return again end
  if mode() then return { 'busy', redis.call('PTTL', name) } end
  forget_all()
  redis.call('HSET', name, 'mode', 'write', owner .. ':write', 1)
  redis.call('PEXPIRE', name, int(lease))
  return granted(WRITE, ARGV[6])
end

-- Ends a read or a write, whichever it is.
local function drop(id)
  if redis.call('HEXISTS', name, id .. ':write') == 1 then
    drop_write(id)
    return true
  end
  local reads = redis.call('HEXISTS', name, id) == 1
  if reads then drop_read(id) end
  return reads
end

-- Owners of reads and writes, without the ending of a write.
local function owners()
  local found = {}
  for _, field in ipairs(redis.call('HKEYS', name)) do
    if field ~= 'mode' then found[#found + 1] = (string.gsub(field, ':write$', '')) end
  end
  return found
end

kinds.rw = {
  claim = function()
    return ARGV[8] == 'write' and claim_write() or claim_read()
  end,
  beat = function()
    return renew_write() or renew_read() or { 'gone' }
  end,
  release = function()
    forget(owner, ARGV[6])
    return { drop(owner) and 'released' or 'gone' }
  end,
  evict = function()
    local fence, lost, reads = tonumber(ARGV[6]), {}, false
    for _, id in ipairs(owners()) do
      local place = note(id)
      if #lost == SOME then break end
      if fence == 0 or (place and place.fence <= fence and fence < place.fence + BLOCK) then
        if redis.call('HEXISTS', name, id .. ':write') == 1 then
          drop_write(id)
        else
          end_read(id)
          reads = true
        end
        forget(id)
        lost[#lost + 1] = id
      end
    end
    if reads then settle_reads() end
    return lost
  end,
  look = function()
    local rows = {}
    for _, id in ipairs(owners()) do
      local writes = redis.call('HEXISTS', name, id .. ':write') == 1
      local left = writes and redis.call('PTTL', name) or redis.call('PTTL', timeout_key(id, 1))
      if left > 0 then rows[#rows + 1] = shown(id, writes and WRITE or 1, left) end
    end
    return rows
  end,
}
