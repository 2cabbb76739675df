-- Reads a part of the current state of a topic.
--
-- The second key is the state. ARGV from 3: the cursor, "0" for the first part, and the bytes of frames
-- that end the part. Returns the epoch, the last offset, the time in milliseconds, the cursor of the next
-- part, "0" if there is none, and the frames.
--
-- A hash of few short values is returned whole. Of others, HSCAN returns with COUNT 1 what is in one
-- bucket, so that a part is longer than it should be by no more than that, and with COUNT 10 about ten
-- times as much, if ten like the longest so far fit.
local cursor, maxBytes = ARGV[3], tonumber(ARGV[4])
local frames, bytes, longest = {}, 0, 0
if isUnused then
  return {record[1], record[3], unixMillis(), '0', frames}
end
extendLifetime(KEYS[1], ARGV[2])
repeat
  local count, entries = 1, nil
  if longest > 0 and bytes + 10 * longest <= maxBytes then
    count = 10
  end
  cursor, entries = unpack(call('HSCAN', KEYS[2], cursor, 'COUNT', count))
  for i = 2, #entries, 2 do
    local length = #entries[i]
    frames[#frames + 1] = entries[i]
    longest = math.max(longest, length)
    bytes = bytes + length
  end
until cursor == '0' or bytes >= maxBytes
return {record[1], record[3], unixMillis(), cursor, frames}
