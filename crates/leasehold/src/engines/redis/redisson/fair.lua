-- RFairLock: as RLock, and list QUEUE of waiting owners in order, zset TIMEOUTS owner = deadline in ms. Each waiter
-- listens on CHANNEL:owner. KEYS: name, ours, channel, queue, timeouts. ARGV: who, 1 if it waits.
-- Every take moves the other deadlines forward by WAIT, as Redisson's own takes do.

local WAIT = 300000

local function fair_head()
  return redis.call('LINDEX', KEYS[4], 0)
end

local function fair_drop_stale()
  while true do
    local head = fair_head()
    local ends = head and redis.call('ZSCORE', KEYS[5], head)
    if not ends or tonumber(ends) > millis then return end
    redis.call('ZREM', KEYS[5], head)
    redis.call('LPOP', KEYS[4])
  end
end

local function fair_tell()
  local head = fair_head()
  if head then publish(KEYS[3] .. ':' .. head, 0) end
end

local function fair_take()
  redis.call('LREM', KEYS[4], 0, owner)
  redis.call('ZREM', KEYS[5], owner)
  for _, id in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do redis.call('ZINCRBY', KEYS[5], -WAIT, id) end
  return lock_take()
end

local function fair_join()
  local ttl = redis.call('PTTL', name)
  local before = redis.call('LINDEX', KEYS[4], -1)
  local ends = before and redis.call('ZSCORE', KEYS[5], before)
  local from = ends and tonumber(ends) - millis or ttl
  if redis.call('ZADD', KEYS[5], int(from + WAIT + millis), owner) == 1 then redis.call('RPUSH', KEYS[4], owner) end
end

local function fair_leave()
  local found = false
  for _, id in ipairs(redis.call('LRANGE', KEYS[4], 0, -1)) do
    if found then redis.call('ZINCRBY', KEYS[5], -WAIT, id) end
    found = found or id == owner
  end
  redis.call('ZREM', KEYS[5], owner)
  redis.call('LREM', KEYS[4], 0, owner)
  -- It may have been told that the lock is free.
  if found and lock_free() then fair_tell() end
  return found
end

kinds.fair = {
  claim = function()
    fair_drop_stale()
    local again = lock_renew()
    if again then return again end
    local head = fair_head()
    if lock_free() and (not head or head == owner) then return fair_take() end
    if ARGV[7] == '1' then fair_join() end
    return { 'busy', redis.call('PTTL', name) }
  end,
  beat = kinds.lock.beat,
  release = function()
    forget(owner, ARGV[6])
    fair_drop_stale()
    if redis.call('HDEL', name, owner) == 1 then
      fair_tell()
      return { 'released' }
    end
    return { fair_leave() and 'released' or 'gone' }
  end,
  evict = function()
    fair_drop_stale()
    return lock_drop(tonumber(ARGV[6]), fair_tell)
  end,
  look = function()
    local rows = lock_shown()
    for _, id in ipairs(redis.call('LRANGE', KEYS[4], 0, -1)) do
      local ends = redis.call('ZSCORE', KEYS[5], id) or millis
      rows[#rows + 1] = { id, '0', int(tonumber(ends) - millis), '0', '0', '' }
    end
    return rows
  end,
}
