-- Reads a page of a topic.
--
-- The second key is the stream. ARGV from 3: the first and the last ID, the maximum of
-- publications, 1 for the newest of them, the maximum age in milliseconds.
--
-- Returns the epoch, the last offset, the previous epoch, the offset at which that ended, and the
-- frames, the newest first if so requested.
local first, final, limit, maxAge = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[7])
if limit == 0 or isUnused then
  extendLifetime(KEYS[1], ARGV[2])
  return {record[1], record[3], record[4] or '', record[5] or '0', {}}
end

local now = unixMillis()

local function isExpired(entry)
  local at = string.match(entry[2][2], '^%S+ %d+ (%d+)')
  return tonumber(now) - tonumber(at) >= maxAge
end

-- firstUnexpired returns the ID of the first publication after an expired one that has not expired.
local function firstUnexpired(expired)
  local low, high = tonumber(string.match(expired[1], '^%d+')), tonumber(record[3]) + 1
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    local id = string.format('%d-0', middle)
    local entry = call('XRANGE', KEYS[2], id, id)[1]
    if entry and not isExpired(entry) then
      high = middle
    else
      low = middle
    end
  end
  return string.format('%d-0', high), high
end

local frames = {}
if ARGV[6] == '1' then
  for i, entry in ipairs(call('XREVRANGE', KEYS[2], final, first, 'COUNT', limit)) do
    if isExpired(entry) then
      break
    end
    frames[i] = entry[2][2]
  end
else
  local entries = call('XRANGE', KEYS[2], first, final, 'COUNT', limit)
  if entries[1] and isExpired(entries[1]) then
    local from, offset = firstUnexpired(entries[1])
    entries = {}
    if final == '+' or offset <= tonumber(string.match(final, '%d+')) then
      entries = call('XRANGE', KEYS[2], from, final, 'COUNT', limit)
    end
  end
  for i, entry in ipairs(entries) do
    frames[i] = entry[2][2]
  end
end
if #frames == 0 then -- otherwise the metadata outlives the stream
  extendLifetime(KEYS[1], ARGV[2])
end
return {record[1], record[3], record[4] or '', record[5] or '0', frames}
