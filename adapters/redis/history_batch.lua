-- Reads the positions of several topics, and publications as far as the bounds allow.
--
-- KEYS: for each topic its metadata, its stream, and the record of topics without metadata. ARGV: a random
-- epoch, and the maximum of publications and of the bytes of their packets. Then for each topic the lifetime
-- of its metadata, the offset after which publications are read, their maximum, and their maximum age.
-- Times are in milliseconds.
--
-- Returns what is left of the two maximums, then for each topic either an error as a string, or its epoch,
-- its last offset, the previous epoch, the offset at which that ended, the frames, or 0 if they are
-- omitted, and "1" if the topic is closed. A topic with metadata of another lineage begins an epoch.
local candidate, messages, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if string.find(replication, 'role:slave', 1, true) then
  return redis.error_reply("READONLY a replica's positions may be older than what was published")
end
local now = unixMillis()

-- page returns frames after an offset and the bytes of their packets, or nil if these exceed what is left.
local function page(stream, after, limit, maxAge, top)
  local frames, sum = {}, 0
  local last = math.min(after + limit, top)
  while after < last do
    local entries = call('XRANGE', stream, format('%d-0', after + 1), '+', 'COUNT', math.min(last - after, 64))
    if not entries[1] then
      break
    end
    if #frames == 0 then -- publications before the first one may have been removed
      after = tonumber(string.match(entries[1][1], '^%d+')) - 1
      last = math.min(after + limit, top)
    end
    if #frames == 0 and isExpired(entries[1], now, maxAge) then
      after = firstUnexpired(stream, entries[1], top, now, maxAge) - 1
      last = math.min(after + limit, top)
      entries = call('XRANGE', stream, format('%d-0', after + 1), '+', 'COUNT', math.min(limit, 64))
    end
    for _, entry in ipairs(entries) do
      frames[#frames + 1] = entry[2][2]
      sum = sum + packetBytes(entry[2][2])
    end
    if sum > bytes then
      return nil
    end
    if #entries == 0 then
      break
    end
    after = tonumber(string.match(entries[#entries][1], '^%d+'))
  end
  return frames, sum
end

local function read(meta, stream, first, life, after, limit, maxAge)
  local record = call('HMGET', meta, 'e', 'l', 'o', 'pe', 'po', 'c')
  if not record[1] or not record[3] then
    local epoch, previous, description = firstEpoch(first, meta, candidate)
    if description.isNew then
      beginEpoch(first, epoch, description.previous)
    else
      extendLifetime(first, 2 * day)
    end
    return {epoch, '0', previous or '', '0', {}, ''}
  end
  if record[2] ~= lineage then
    call('HDEL', meta, 'r') -- when a script has removed something, it may write though memory is full
    local epoch, failure = openTopic(first, meta, stream, candidate, life)
    if not epoch then
      return failure
    end
    record = call('HMGET', meta, 'e', 'l', 'o', 'pe', 'po', 'c')
  end
  local top, frames = tonumber(record[3]), {}
  local count = math.min(limit, top - after)
  if count > messages then
    frames = 0
  elseif count > 0 then
    messages = messages - count
    local size
    frames, size = page(stream, after, limit, maxAge, top)
    bytes = bytes - (size or 0)
  end
  if frames == nil or frames == 0 or #frames == 0 then -- otherwise the metadata outlives the stream
    extendLifetime(meta, life)
  end
  return {record[1], record[3], record[4] or '', record[5] or '0', frames or 0, record[6] or ''}
end

-- A topic whose keys are of another type, for example, does not make the others fail.
local protected = _G.pcall
local results = {0, 0}
for i = 1, #KEYS / 3 do
  local k, a = 3 * i, 4 * i
  local ok, result = protected(read, KEYS[k - 2], KEYS[k - 1], KEYS[k], ARGV[a], tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]))
  if not ok and type(result) == 'table' then
    result = result.err
  end
  results[i + 2] = result
end
results[1], results[2] = messages, bytes
return results
