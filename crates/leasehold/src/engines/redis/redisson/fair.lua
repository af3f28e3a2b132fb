-- RFairLock: as RLock, and list QUEUE of waiting owners in order, zset TIMEOUTS owner = deadline in ms. Each waiter
-- listens on CHANNEL:owner. KEYS: name, ours, channel, queue, timeouts. ARGV: who, 1 if it waits.
-- Every take moves the other deadlines forward by WAIT, as Redisson's own takes do.
-- Of our own waiters our hash has ?OWNER, the end and the beginning of the wait: one that says nothing for a lease is
-- gone, and the next of our clients takes it out of the queue. Redisson would wait for it for five minutes.

local WAIT = 300000

local function fair_head()
  return redis.call('LINDEX', KEYS[4], 0)
end

local function fair_tell()
  local head = fair_head()
  if head then publish(KEYS[3] .. ':' .. head, 0) end
end

-- When one of our own waiters ends, and since when it waits.
local function fair_wait(id)
  local ends, since = string.match(redis.call('HGET', ours, '?' .. id) or '', '^(%d+) (%d+)$')
  return tonumber(ends), tonumber(since)
end

local function fair_forget(id)
  if redis.call('HDEL', ours, '?' .. id) == 1 then redis.call('HDEL', ours, '@' .. id) end
end

-- Every thread behind the one that leaves moves forward.
local function fair_leave(gone)
  local found = false
  for _, id in ipairs(redis.call('LRANGE', KEYS[4], 0, -1)) do
    if found then redis.call('ZINCRBY', KEYS[5], -WAIT, id) end
    found = found or id == gone
  end
  redis.call('ZREM', KEYS[5], gone)
  redis.call('LREM', KEYS[4], 0, gone)
  fair_forget(gone)
  return found
end

-- Of ours those that fell silent, of Redisson's those whose deadline has passed. The threads behind ours move forward
-- once for all of them.
local function fair_drop_stale()
  local moved = 0
  for _ = 1, SOME do
    local head = fair_head()
    local ends = head and redis.call('ZSCORE', KEYS[5], head)
    local ours_ends = head and fair_wait(head)
    local silent = ours_ends and ours_ends <= now and head ~= owner
    if not silent and not (ends and tonumber(ends) - moved <= millis) then break end
    if silent then moved = moved + WAIT end
    redis.call('ZREM', KEYS[5], head)
    redis.call('LPOP', KEYS[4])
    fair_forget(head)
  end
  if moved == 0 then return end
  for _, id in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do redis.call('ZINCRBY', KEYS[5], -moved, id) end
end

-- A dead head of the queue that was told of a release has not passed it on.
local function fair_tell_next(before)
  local head = fair_head()
  if head and head ~= before and head ~= owner and lock_free() then fair_tell() end
end

local function fair_take()
  redis.call('LREM', KEYS[4], 0, owner)
  redis.call('ZREM', KEYS[5], owner)
  fair_forget(owner)
  for _, id in ipairs(redis.call('ZRANGE', KEYS[5], 0, -1)) do redis.call('ZINCRBY', KEYS[5], -WAIT, id) end
  return lock_take()
end

local function fair_join()
  local ttl = redis.call('PTTL', name)
  local before = redis.call('LINDEX', KEYS[4], -1)
  local ends = before and redis.call('ZSCORE', KEYS[5], before)
  local from = ends and tonumber(ends) - millis or ttl
  if redis.call('ZSCORE', KEYS[5], owner) then return nil end
  local refused = full(redis.call('ZCARD', KEYS[5]))
  if refused then return refused end
  redis.call('ZADD', KEYS[5], int(from + WAIT + millis), owner)
  redis.call('RPUSH', KEYS[4], owner)
  return nil
end

-- One of ours waits: it is alive until then.
local function fair_heard()
  local ends, since = fair_wait(owner)
  ends = math.max(ends or 0, now + lease * 1000)
  redis.call('HSET', ours, '?' .. owner, int(ends) .. ' ' .. int(since or now), '@' .. owner, ARGV[6])
  -- For as long as Redisson would wait for it: later clients must know that it was ours.
  keep(math.max(ends, tonumber(redis.call('ZSCORE', KEYS[5], owner) or 0) * 1000))
end

kinds.fair = {
  claim = function()
    local before = fair_head()
    fair_drop_stale()
    local again = lock_renew()
    if again then return again end
    local head = fair_head()
    if lock_free() and (not head or head == owner) then return fair_take() end
    if ARGV[7] == '1' then
      local refused = fair_join()
      if refused then return refused end
      fair_heard()
    end
    fair_tell_next(before)
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
    local left = fair_leave(owner)
    -- It may have been told that the lock is free.
    if left and lock_free() then fair_tell() end
    return { left and 'released' or 'gone' }
  end,
  evict = function()
    fair_drop_stale()
    return lock_drop(tonumber(ARGV[6]), fair_tell)
  end,
  look = function()
    local rows = lock_shown()
    for _, id in ipairs(redis.call('LRANGE', KEYS[4], 0, -1)) do
      local ends, since = fair_wait(id)
      local left = (ends or tonumber(redis.call('ZSCORE', KEYS[5], id) or 0) * 1000) - now
      if left > 0 then
        local who = redis.call('HGET', ours, '@' .. id) or ''
        rows[#rows + 1] = { id, '0', int(left / 1000), '0', int(since or 0), who }
      end
    end
    return rows
  end,
}
