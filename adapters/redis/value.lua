-- Loads, replaces or deletes values.
--
-- KEYS: the values, each a hash of its version v and its data d. ARGV: for each value, how many arguments
-- follow. None load it; otherwise they are the expected version, 0 if there is no value, then nothing to
-- delete it, or the new version, the new data, and the lifetime in milliseconds. A patch has the offset and
-- the number of the bytes that the data replaces, too.
--
-- Returns for each value either its version, 0 if there is no value, and the data if it was loaded; or an
-- error as a string, and the value has not changed.
local call = redis.call
if string.find(call('INFO', 'replication'), 'role:slave', 1, true) then
  return redis.error_reply("READONLY a replica's value may be older than the current one")
end

-- change replaces or deletes a value. Its count arguments begin behind ARGV[at].
local function change(key, at, count)
  if (call('HGET', key, 'v') or '0') ~= ARGV[at + 1] then
    return 'OTHERVERSION the value has another version'
  end
  if count == 1 then
    call('DEL', key)
    return {'0', ''}
  end
  local data = ARGV[at + 3]
  if count == 6 then
    local old, offset, removed = call('HGET', key, 'd') or '', tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
    if offset < 0 or removed < 0 or offset + removed > #old then
      return 'SHORTVALUE the value is shorter than the patch'
    end
    data = string.sub(old, 1, offset) .. data .. string.sub(old, offset + removed + 1)
  end
  -- Old servers change the beginning of an error that redis.call raises. It is OOM if memory is full.
  local reply = redis.pcall('HSET', key, 'v', ARGV[at + 2], 'd', data)
  if type(reply) == 'table' then
    return reply.err
  end
  call('PEXPIRE', key, ARGV[at + 4]) -- needs no memory that the server checks
  return {ARGV[at + 2], ''}
end

local function execute(key, at, count)
  if count > 0 then
    return change(key, at, count)
  end
  local current = call('HMGET', key, 'v', 'd')
  return {current[1] or '0', current[2] or ''}
end

-- A key of another type, for example, does not make the calls for others fail.
local results, at = {}, 1
for i = 1, #KEYS do
  local count = tonumber(ARGV[at])
  local ok, result = pcall(execute, KEYS[i], at, count)
  if not ok and type(result) == 'table' then
    result = result.err
  end
  results[i], at = result, at + count + 1
end
return results
