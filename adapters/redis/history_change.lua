-- Begins an epoch of a topic whose metadata is of another lineage.
--
-- KEYS: the metadata, the stream, and the record of topics without metadata. ARGV: a random epoch, the
-- lifetime of the metadata in milliseconds.
if call('EXISTS', KEYS[1]) == 0 then
  return '' -- it has expired meanwhile
end
call('HDEL', KEYS[1], 'r') -- when a script has removed something, it may write though memory is full
local epoch, failure = openTopic(KEYS[3], KEYS[1], KEYS[2], ARGV[1], ARGV[2])
if not epoch then
  return redis.error_reply(failure)
end
return epoch
