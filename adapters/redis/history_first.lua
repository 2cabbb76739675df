-- Every script of histories goes on with this text. Topics without metadata share a few records, so that
-- reading one stores nothing for it. A record is a hash: e is the epoch in which its topics begin, l the
-- lineage and t the time in which that began, pe the epoch before it. Every other field is a topic that
-- began in one of the two, and its value is that epoch.
local day = 24 * 60 * 60 * 1000

-- firstEpoch returns the epoch in which a topic without metadata begins, and the epoch that has ended
-- for it at offset 0, or false. Its third result describes the record. A new epoch is needed if the
-- lineage has changed, or if the topic began in this one: its metadata has expired or was lost, and its
-- positions must not be used again. The suffix distinguishes it from epochs of topics with metadata.
local function firstEpoch(key, meta, candidate)
  local topic = string.sub(redis.sha1hex(meta), 1, 16)
  local record = call('HMGET', key, 'e', 'l', 'pe', topic, 't')
  local epoch, previous, isNew = record[1], record[3], false
  if not epoch or record[2] ~= lineage or record[4] == epoch then
    epoch, previous, isNew = candidate .. '0', epoch, true
  end
  local first = {key = key, topic = topic, epoch = epoch, previous = previous, isNew = isNew, began = record[5]}
  if record[4] == previous then
    return epoch, false, first
  end
  return epoch, previous, first
end

-- beginEpoch changes the epoch of a record. Its first write removes something: then no other is
-- rejected because memory is full.
local function beginEpoch(key, epoch, previous)
  call('HDEL', key, 'pe')
  local fields = call('HGETALL', key)
  for i = 1, #fields, 2 do
    if #fields[i] > 2 and fields[i + 1] ~= previous then
      call('HDEL', key, fields[i])
    end
  end
  call('HSET', key, 'e', epoch, 'l', lineage, 't', unixMillis())
  if previous then
    call('HSET', key, 'pe', previous)
  end
  call('PEXPIRE', key, 2 * day)
end

-- extendLifetime makes a key last for at least a day. It is the only write of most reads: it needs no
-- memory, and its error is ignored, since a server that accepts no writes can be read.
local function extendLifetime(key, life)
  if call('PTTL', key) < day then
    pcall('PEXPIRE', key, life)
  end
end
