-- Reads a page of a topic.
--
-- The second key is the stream. ARGV from 3: the first and the last ID, the maximum of
-- publications, 1 for the newest of them, the maximum age in milliseconds.
--
-- Returns the epoch, the last offset, the previous epoch, the offset at which that ended, the frames, the
-- newest first if so requested, and "1" if the topic is closed.
local first, final, limit, maxAge = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[7])
if limit == 0 or isUnused then
  extendLifetime(KEYS[1], ARGV[2])
  return {record[1], record[3], record[4] or '', record[5] or '0', {}, record[6] or ''}
end

local now = unixMillis()
local frames = {}
if ARGV[6] == '1' then
  for i, entry in ipairs(call('XREVRANGE', KEYS[2], final, first, 'COUNT', limit)) do
    if isExpired(entry, now, maxAge) then
      break
    end
    frames[i] = entry[2][2]
  end
else
  local entries = call('XRANGE', KEYS[2], first, final, 'COUNT', limit)
  if entries[1] and isExpired(entries[1], now, maxAge) then
    local offset = firstUnexpired(KEYS[2], entries[1], tonumber(record[3]), now, maxAge)
    entries = {}
    if final == '+' or offset <= tonumber(string.match(final, '%d+')) then
      entries = call('XRANGE', KEYS[2], format('%d-0', offset), final, 'COUNT', limit)
    end
  end
  for i, entry in ipairs(entries) do
    frames[i] = entry[2][2]
  end
end
if #frames == 0 then -- otherwise the metadata outlives the stream
  extendLifetime(KEYS[1], ARGV[2])
end
return {record[1], record[3], record[4] or '', record[5] or '0', frames, record[6] or ''}
