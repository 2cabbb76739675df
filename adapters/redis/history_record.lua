-- Every script of histories begins with this text. Metadata of a topic is a hash: e is the epoch, l
-- the lineage in which it began, o the last offset, pe and po the previous epoch and the offset at
-- which it ended, r when lifetimes are renewed, b the bytes of the stored packets if they are
-- limited.
local call, pcall, format = redis.call, redis.pcall, string.format

-- The lineage is the replication ID, which changes when a replica is promoted and when the server
-- restarts: whenever publications that were seen may have been lost.
local replication = call('INFO', 'replication')
local lineage = string.match(replication, 'master_replid:(%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x)')
local time = call('TIME')
local now = time[1] .. string.sub('000000' .. time[2], -6, -4) -- Unix milliseconds

-- openTopic returns the epoch and the last offset of a topic, when its lifetimes are renewed, and the
-- bytes if they are counted; or nil and an error. It begins an epoch if there is none, or if the
-- lineage has changed; then the offset continues, so that IDs in the stream grow. Of several writes,
-- the first is one that fails if memory is full.
local function openTopic(meta, stream, candidate, life)
  local record = pcall('HMGET', meta, 'e', 'l', 'o', 'r', 'b')
  if record.err then
    return nil, record.err
  end
  local epoch, top = record[1], tonumber(record[3])
  if not epoch or not top then
    local reply = pcall('HSET', meta, 'e', candidate, 'l', lineage, 'o', '0')
    if type(reply) == 'table' then
      return nil, reply.err
    end
    call('PEXPIRE', meta, life)
    -- What is left is of an epoch that is not known. The state is no declared key, since it exists
    -- in few topics; it has the slot of the others.
    call('DEL', stream)
    pcall('DEL', meta .. ':state')
    return candidate, 0, 0, false
  end
  if record[2] ~= lineage then
    local reply = pcall('HSET', meta, 'e', candidate, 'l', lineage, 'pe', epoch, 'po', record[3])
    if type(reply) == 'table' then
      return nil, reply.err
    end
    epoch = candidate
  end
  return epoch, top, tonumber(record[4] or 0), record[5]
end

if not lineage then
  return redis.error_reply('NOLINEAGE INFO replication has no master_replid')
end
