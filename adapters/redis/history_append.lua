-- Stores and publishes publications of several topics.
--
-- KEYS: for each topic its metadata, stream and state, then the idempotency keys of its
-- publications. ARGV: a random epoch, the command that publishes, the lifetime of idempotency keys;
-- then for each topic the number of its publications, its channel, the maximum of messages, the
-- lifetimes of the stream and of the metadata, the maximum of bytes or 0; then for each publication
-- its text, 1 if it has an idempotency key, its state key, and 1 if that is removed. Times are in
-- milliseconds.
--
-- Returns for each topic its epoch, then for each publication its offset; or, as strings, the
-- position of a duplicate, or "!" and an error.
local candidate, publish, keyLife = ARGV[1], ARGV[2], ARGV[3]

-- packetBytes returns the length of the packet in a frame.
local function packetBytes(frame)
  local key, start = string.match(frame, '^%S+ %d+ %d+ (-?%d+) ()')
  return #frame - start + 1 - math.abs(tonumber(key))
end

-- trim removes the oldest messages until the limits are met, and counts the bytes of the others.
local function trim(meta, stream, counted, added, addedBytes, maxMessages, maxBytes)
  local messages, bytes = redis.call('XLEN', stream), addedBytes
  if messages > added then
    if counted then
      bytes = tonumber(counted) + addedBytes
    else
      bytes = 0
      for _, entry in ipairs(redis.call('XRANGE', stream, '-', '+')) do
        bytes = bytes + packetBytes(entry[2][2])
      end
    end
  end
  while messages > 0 and (messages > maxMessages or bytes > maxBytes) do
    local entry = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
    redis.call('XDEL', stream, entry[1])
    messages, bytes = messages - 1, bytes - packetBytes(entry[2][2])
  end
  redis.call('HSET', meta, 'b', string.format('%d', bytes))
end

local results, k, a, last = {}, 1, 4, #ARGV
while a <= last do
  local meta, stream, state = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local count, channel, maxMessages = tonumber(ARGV[a]), ARGV[a + 1], tonumber(ARGV[a + 2])
  local streamLife, metaLife, maxBytes = ARGV[a + 3], ARGV[a + 4], tonumber(ARGV[a + 5])
  k, a = k + 3, a + 6
  local epoch, top, counted = openTopic(meta, stream, state, candidate, metaLife)
  local failure, added, addedBytes, trimTo = nil, 0, 0, maxMessages
  if not epoch then
    failure = top
  end
  if maxBytes > 0 then
    trimTo = 1000000000 -- trim does it
  end
  results[#results + 1] = epoch or ''
  for _ = 1, count do
    local text, stateKey, removed = ARGV[a], ARGV[a + 2], ARGV[a + 3]
    local key, result = nil, nil
    if ARGV[a + 1] == '1' then
      key = KEYS[k]
      k = k + 1
    end
    a = a + 4
    if failure then
      result = '!' .. failure
    elseif key then
      result = redis.pcall('GET', key)
      if type(result) == 'table' then
        result = '!' .. result.err
      end
    end
    if not result then
      local offset = string.format('%d', top + 1)
      local frame = epoch .. ' ' .. offset .. ' ' .. now .. ' ' .. text
      local reply = redis.pcall('XADD', stream, 'MAXLEN', trimTo, offset .. '-0', 'p', frame)
      if reply.err then
        result = '!' .. reply.err
      else
        -- Nothing below fails: memory was sufficient for the first write, and no command
        -- checks it again.
        top, added = top + 1, added + 1
        if maxBytes > 0 then
          addedBytes = addedBytes + packetBytes(frame)
        end
        if key then
          redis.call('SET', key, epoch .. ' ' .. offset, 'PX', keyLife)
        end
        if stateKey ~= '' then
          if removed == '1' then
            redis.pcall('HDEL', state, stateKey)
          elseif redis.pcall('HSET', state, stateKey, frame) == 1 then
            redis.call('PEXPIRE', state, streamLife)
          end
        end
        redis.call(publish, channel, frame)
        result = top
      end
    end
    results[#results + 1] = result
  end
  if added > 0 then
    redis.call('HSET', meta, 'o', string.format('%d', top))
    if maxBytes > 0 then
      trim(meta, stream, counted, added, addedBytes, maxMessages, maxBytes)
    elseif counted then
      redis.call('HDEL', meta, 'b')
    end
    if redis.call('PTTL', stream) < tonumber(streamLife) * 0.9 then
      redis.call('PEXPIRE', stream, streamLife)
      redis.call('PEXPIRE', state, streamLife)
      redis.call('PEXPIRE', meta, metaLife)
    end
  end
end
return results
