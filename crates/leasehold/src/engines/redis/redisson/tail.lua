
-- Whether the name is free, or in use as this kind of lock. The hash of a read/write lock has a mode, that of a plain
-- lock has none: Redisson itself would take the one for the other.
local function is_of_kind()
  local type = redis.call('TYPE', name).ok
  if type == 'none' then return true end
  if ARGV[1] == 'semaphore' or ARGV[1] == 'permits' then return type == 'string' end
  return type == 'hash' and (ARGV[1] == 'rw') == (redis.call('HEXISTS', name, 'mode') == 1)
end

local otherwise = { claim = { 'kind' }, beat = { 'gone' }, release = { 'gone' }, evict = {}, look = {} }

return { ARGV[3], is_of_kind() and kinds[ARGV[1]][ARGV[2]]() or otherwise[ARGV[2]] }
