-- Reads the current state of a topic.
--
-- The second key is the state. Returns the epoch, the last offset, the time in milliseconds, and the
-- frames.
local frames = {}
if not isUnused then
  extendLifetime(KEYS[1], ARGV[2])
  frames = call('HVALS', KEYS[2])
end
return {record[1], record[3], unixMillis(), frames}
