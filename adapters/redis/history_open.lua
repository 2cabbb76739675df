-- Every script that writes publications or begins epochs of topics goes on with this text.

-- beginTopic returns the first epoch of a topic, or nil and an error. Of several writes, the first is
-- one that fails if memory is full.
local function beginTopic(record, meta, stream, candidate, life)
  local epoch, previous, first = firstEpoch(record, meta, candidate)
  local fields = {'e', epoch, 'l', lineage, 'o', '0'}
  if previous then
    fields = {'e', epoch, 'l', lineage, 'o', '0', 'pe', previous, 'po', '0'}
  end
  local reply = pcall('HSET', meta, unpack(fields))
  if type(reply) == 'table' then
    return nil, reply.err
  end
  call('PEXPIRE', meta, life)
  if first.isNew then
    beginEpoch(record, epoch, first.previous)
  end
  call('HSET', record, first.topic, epoch)
  if not first.isNew and tonumber(unixMillis()) - tonumber(first.began) >= day then
    beginEpoch(record, candidate .. '1', epoch) -- so that the record does not grow without bound
  end
  -- What is left is of an epoch that is not known. The state is no declared key, since it exists
  -- in few topics; it has the slot of the others.
  call('DEL', stream)
  pcall('DEL', meta .. ':state')
  return epoch
end

-- openTopic returns the epoch and the last offset of a topic, when its lifetimes are renewed, the bytes if
-- they are counted, the fence if it has one, and whether it is closed; or nil and an error. It begins an
-- epoch if there is none, or if the lineage has changed; then the offset continues, so that IDs in the
-- stream grow, and the fence remains.
local function openTopic(firstRecord, meta, stream, candidate, life)
  local record = pcall('HMGET', meta, 'e', 'l', 'o', 'r', 'b', 'f', 'c')
  if record.err then
    return nil, record.err
  end
  local epoch, top = record[1], tonumber(record[3])
  if not epoch or not top then
    local failure
    epoch, failure = beginTopic(firstRecord, meta, stream, candidate, life)
    return epoch, failure or 0, 0, false, false, false
  end
  if record[2] ~= lineage then
    local reply = pcall('HSET', meta, 'e', candidate, 'l', lineage, 'pe', epoch, 'po', record[3])
    if type(reply) == 'table' then
      return nil, reply.err
    end
    epoch = candidate
  end
  return epoch, top, tonumber(record[4] or 0), record[5], record[6], record[7]
end
