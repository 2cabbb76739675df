-- Reads the current state of a topic. It writes nothing.
--
-- KEYS: the metadata and the state. Returns the epoch, the last offset, the time in milliseconds,
-- and the frames; or an error if no epoch of this lineage exists.
if string.find(replication, 'role:slave', 1, true) then
  return redis.error_reply("READONLY a replica's positions may be older than what was published")
end
local record = call('HMGET', KEYS[1], 'e', 'l', 'o')
if not record[1] or not record[3] then
  return redis.error_reply('NOEPOCH the topic has no metadata')
end
if record[2] ~= lineage then
  return redis.error_reply('OLDEPOCH the topic has metadata of another lineage')
end
return {record[1], record[3], now, call('HVALS', KEYS[2])}
