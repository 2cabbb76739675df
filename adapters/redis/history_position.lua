-- Every script that reads a topic goes on with this text. It reads the metadata into record, and returns
-- an error if that is of another lineage. If there is none, isUnused is true, and record has the position
-- at which the topic will begin.
--
-- KEYS: the metadata, another key, and the record of topics without metadata. ARGV: a random epoch, and the
-- lifetime of the metadata in milliseconds.
if string.find(replication, 'role:slave', 1, true) then
  return redis.error_reply("READONLY a replica's positions may be older than what was published")
end
local record = call('HMGET', KEYS[1], 'e', 'l', 'o', 'pe', 'po', 'c')
local isUnused = not record[1] or not record[3]
if isUnused then
  local epoch, previous, first = firstEpoch(KEYS[3], KEYS[1], ARGV[1])
  if first.isNew then
    beginEpoch(KEYS[3], epoch, first.previous)
  else
    extendLifetime(KEYS[3], 2 * day)
  end
  record = {epoch, lineage, '0', previous, '0'}
elseif record[2] ~= lineage then
  return redis.error_reply('OLDEPOCH the topic has metadata of another lineage')
end
