-- Reads the current state of a topic.
--
-- KEYS: the metadata and the state. Returns the epoch, the last offset, the time in milliseconds,
-- and the frames.
extendLifetime()
return {record[1], record[3], unixMillis(), call('HVALS', KEYS[2])}
