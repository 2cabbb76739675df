-- Every script that reads a topic begins with this text. It reads the metadata into record, and returns
-- an error if no epoch of this lineage exists.
--
-- KEYS[1]: the metadata. ARGV: a day and the lifetime of the metadata, in milliseconds.
if string.find(replication, 'role:slave', 1, true) then
  return redis.error_reply("READONLY a replica's positions may be older than what was published")
end
local record = call('HMGET', KEYS[1], 'e', 'l', 'o', 'pe', 'po')
if not record[1] or not record[3] then
  return redis.error_reply('NOEPOCH the topic has no metadata')
end
if record[2] ~= lineage then
  return redis.error_reply('OLDEPOCH the topic has metadata of another lineage')
end

-- extendLifetime makes the metadata last for at least a day. It is the only write of a read: it needs no
-- memory, and its error is ignored, since a server that accepts no writes can be read.
local function extendLifetime()
  if call('PTTL', KEYS[1]) < tonumber(ARGV[1]) then
    pcall('PEXPIRE', KEYS[1], ARGV[2])
  end
end
