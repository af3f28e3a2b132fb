-- RLock and RFencedLock: hash NAME {owner = hold count}, with a TTL. KEYS: name, ours, channel, token.
-- ARGV: who, 1 if it waits, 'fenced' for a token of Redisson's own with every grant.

local function lock_block()
  return ARGV[8] == 'fenced' and 1 or BLOCK
end

local function lock_free()
  return redis.call('EXISTS', name) == 0
end

local function lock_renew()
  if redis.call('HEXISTS', name, owner) == 0 then return nil end
  -- A grant whose fence was lost with our hash is over.
  if not note(owner) then
    redis.call('HDEL', name, owner)
    return nil
  end
  redis.call('PEXPIRE', name, int(math.max(lease, redis.call('PTTL', name))))
  return renewed(lock_block())
end

local function lock_take()
  forget_all()
  local token = ARGV[8] == 'fenced' and redis.call('INCR', KEYS[4])
  redis.call('HSET', name, owner, 1)
  redis.call('PEXPIRE', name, int(lease))
  return granted(1, ARGV[6], token)
end

local function lock_shown()
  local rows, all, left = {}, redis.call('HGETALL', name), redis.call('PTTL', name)
  for i = 1, #all, 2 do rows[#rows + 1] = shown(all[i], 1, left) end
  return rows
end

-- Takes it from all holders, or from the owner of a fence; answers with the owners.
local function lock_drop(fence, tell)
  local lost = {}
  for _, id in ipairs(redis.call('HKEYS', name)) do
    local place = note(id)
    local meant = fence == 0 or (place and place.fence <= fence and fence < place.fence + lock_block())
    if meant then
      redis.call('HDEL', name, id)
      forget(id)
      lost[#lost + 1] = id
    end
  end
  if #lost > 0 then tell() end
  return lost
end

kinds.lock = {
  claim = function()
    local again = lock_renew()
    if again then return again end
    if lock_free() then return lock_take() end
    return { 'busy', redis.call('PTTL', name) }
  end,
  beat = function()
    return lock_renew() or { 'gone' }
  end,
  release = function()
    forget(owner, ARGV[6])
    if redis.call('HDEL', name, owner) == 0 then return { 'gone' } end
    publish(KEYS[3], 0)
    return { 'released' }
  end,
  evict = function()
    return lock_drop(tonumber(ARGV[6]), function() publish(KEYS[3], 0) end)
  end,
  look = lock_shown,
}
