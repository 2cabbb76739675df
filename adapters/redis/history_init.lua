-- Begins an epoch of a topic unless one of this lineage exists.
--
-- KEYS: the metadata and the stream. ARGV: a random epoch, the lifetime of the metadata
-- in milliseconds.
local epoch, failure = openTopic(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
if not epoch then
  return redis.error_reply(failure)
end
return epoch
