-- Loads, replaces or deletes a value.
--
-- KEYS: the value, a hash of its version v and its data d. ARGV: nothing to load it; otherwise the
-- expected version, 0 if there is no value, then nothing to delete it, or the new version, the new data,
-- and the lifetime in milliseconds. A patch has the offset and the number of the bytes that the data
-- replaces, too.
--
-- Returns the version, 0 if there is no value, and the data if it was loaded.
local call = redis.call
if string.find(call('INFO', 'replication'), 'role:slave', 1, true) then
  return redis.error_reply("READONLY a replica's value may be older than the current one")
end
if #ARGV == 0 then
  local current = call('HMGET', KEYS[1], 'v', 'd')
  return {current[1] or '0', current[2] or ''}
end
if (call('HGET', KEYS[1], 'v') or '0') ~= ARGV[1] then
  return redis.error_reply('OTHERVERSION the value has another version')
end
if #ARGV == 1 then
  call('DEL', KEYS[1])
  return {'0', ''}
end
local data = ARGV[3]
if #ARGV == 6 then
  local old, offset, removed = call('HGET', KEYS[1], 'd') or '', tonumber(ARGV[5]), tonumber(ARGV[6])
  if offset < 0 or removed < 0 or offset + removed > #old then
    return redis.error_reply('SHORTVALUE the value is shorter than the patch')
  end
  data = string.sub(old, 1, offset) .. data .. string.sub(old, offset + removed + 1)
end
-- Old servers change the beginning of an error that redis.call raises. It is OOM if memory is full.
local reply = redis.pcall('HSET', KEYS[1], 'v', ARGV[2], 'd', data)
if type(reply) == 'table' then
  return reply
end
call('PEXPIRE', KEYS[1], ARGV[4]) -- needs no memory that the server checks
return {ARGV[2], ''}
