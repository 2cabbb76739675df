-- Loads a value, or replaces it if it has the expected version.
--
-- KEYS: the value, a hash of its version v and its data d. ARGV: nothing to load it; otherwise the
-- expected version, 0 if there is no value, the new version, the new data, and the lifetime in milliseconds,
-- 0 to delete the value.
--
-- Returns the version, 0 if there is none, and the data if the value was loaded.
local call = redis.call
local current = call('HMGET', KEYS[1], 'v', 'd')
local version = current[1] or '0'
if #ARGV == 0 then
  if string.find(call('INFO', 'replication'), 'role:slave', 1, true) then
    return redis.error_reply("READONLY a replica's value may be older than the current one")
  end
  return {version, current[2] or ''}
end
if version ~= ARGV[1] then
  return redis.error_reply('OTHERVERSION the value has another version')
end
if ARGV[4] == '0' then
  call('DEL', KEYS[1])
  return {'0', ''}
end
call('HSET', KEYS[1], 'v', ARGV[2], 'd', ARGV[3])
call('PEXPIRE', KEYS[1], ARGV[4])
return {ARGV[2], ''}
