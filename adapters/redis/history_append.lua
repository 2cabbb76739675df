-- Stores and publishes publications of several topics.
--
-- KEYS: for each topic its metadata, whose name is also that of the channel, its stream, and the record
-- of topics without metadata; then for each publication its idempotency key and the state of the topic,
-- if it needs them.
--
-- ARGV: a random epoch, the command that publishes, the lifetime of idempotency keys, and 1 if the lineage
-- is requested, otherwise 0. Then for each
-- retention the maximum of messages, the lifetimes of the stream and of the metadata, the maximum of
-- bytes or 0, and the number of topics; for each topic the number of publications; for each
-- publication its flags, its text, its state key if it has one, its fence if that is not 0, and the epoch that
-- it requires. The flags are the sum of 1 with an idempotency key, 2 with a state key, 4 if that is removed,
-- 8 with a fence, 16 if the publication closes the topic, 32 if it requires an epoch. Times are in
-- milliseconds.
--
-- Returns for each topic its epoch, then for each publication its offset; or, as strings, the
-- position of a duplicate, or "!" and an error: "CLOSED", "FENCED" and the fence of the topic, "OTHEREPOCH"
-- and the epoch, or that of a command. The last result is the lineage, if it is requested.
local candidate, publish, keyLife = ARGV[1], ARGV[2], ARGV[3]
local now = unixMillis()

-- trim removes the oldest messages until the limits are met, and counts the bytes of the others.
local function trim(meta, stream, counted, added, addedBytes, maxMessages, maxBytes)
  local messages, bytes = call('XLEN', stream), addedBytes
  if messages > added then
    if counted then
      bytes = tonumber(counted) + addedBytes
    else
      bytes = 0
      for _, entry in ipairs(call('XRANGE', stream, '-', '+')) do
        bytes = bytes + packetBytes(entry[2][2])
      end
    end
  end
  while messages > 0 and (messages > maxMessages or bytes > maxBytes) do
    local entry = call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
    call('XDEL', stream, entry[1])
    messages, bytes = messages - 1, bytes - packetBytes(entry[2][2])
  end
  call('HSET', meta, 'b', format('%d', bytes))
end

-- isLower compares two fences, which are decimal numbers of up to 64 bits: a number of Lua has 53.
local function isLower(fence, other)
  return #fence < #other or #fence == #other and fence < other
end

-- prune removes expired keys from the state of a topic: all of them unless there are many.
local function prune(state, maxAge)
  local fields = pcall('HRANDFIELD', state, 1000, 'WITHVALUES') -- since Redis 6.2
  for i = 1, #fields, 2 do
    local at = string.match(fields[i + 1], '^%S+ %d+ (%d+)')
    if tonumber(now) - tonumber(at) >= tonumber(maxAge) then
      call('HDEL', state, fields[i])
    end
  end
end

local results, n = {}, 0
local k, a, last = 1, 5, #ARGV
while a <= last do
  local maxMessages, streamLife, metaLife = tonumber(ARGV[a]), ARGV[a + 1], ARGV[a + 2]
  local maxBytes, topics, trimTo = tonumber(ARGV[a + 3]), tonumber(ARGV[a + 4]), maxMessages
  a = a + 5
  if maxBytes > 0 then
    trimTo = 1000000000 -- trim removes messages
  end
  for _ = 1, topics do
    local meta, stream, count = KEYS[k], KEYS[k + 1], tonumber(ARGV[a])
    local first = KEYS[k + 2]
    k, a = k + 3, a + 1
    local failure, added, addedBytes = nil, 0, 0
    local epoch, top, renewal, counted, fence, closed = openTopic(first, meta, stream, candidate, metaLife)
    local isFenceNew, isClosing = false, false
    if not epoch then
      failure = '!' .. top
    end
    n = n + 1
    results[n] = epoch or ''
    for _ = 1, count do
      local flags, text = ARGV[a], ARGV[a + 1]
      local key, state, stateKey, own, required, result = nil, nil, nil, '0', nil, failure
      a = a + 2
      if flags ~= '0' then
        flags = tonumber(flags)
        if flags % 2 == 1 then
          key, k = KEYS[k], k + 1
        end
        if flags % 4 >= 2 then
          state, stateKey, k, a = KEYS[k], ARGV[a], k + 1, a + 1
        end
        if flags % 16 >= 8 then
          own, a = ARGV[a], a + 1
        end
        if flags >= 32 then
          required, a = ARGV[a], a + 1
        end
      end
      if key and not result then
        result = pcall('GET', key)
        if type(result) == 'table' then
          result = '!' .. result.err
        end
      end
      if not result and closed then
        result = '!CLOSED'
      elseif not result and fence and isLower(own, fence) then
        result = '!FENCED ' .. fence
      elseif not result and required and required ~= epoch then
        result = '!OTHEREPOCH ' .. epoch
      end
      if not result then
        local offset = format('%d', top + 1)
        local frame = epoch .. ' ' .. offset .. ' ' .. now .. ' ' .. text
        local reply = pcall('XADD', stream, 'MAXLEN', trimTo, offset .. '-0', 'p', frame)
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
            call('SET', key, epoch .. ' ' .. offset, 'PX', keyLife)
          end
          if state then
            if flags % 8 >= 4 then
              pcall('HDEL', state, stateKey)
            elseif pcall('HSET', state, stateKey, frame) == 1 then
              call('PEXPIRE', state, streamLife)
            end
          end
          if own ~= '0' and own ~= fence then
            fence, isFenceNew = own, true
          end
          if flags ~= '0' and flags % 32 >= 16 then
            closed, isClosing = '1', true
          end
          call(publish, meta, frame)
          result = top
        end
      end
      n = n + 1
      results[n] = result
    end
    if added > 0 then
      call('HSET', meta, 'o', format('%d', top))
      if isFenceNew then
        call('HSET', meta, 'f', fence)
      end
      if isClosing then
        call('HSET', meta, 'c', closed)
      end
      if maxBytes > 0 then
        trim(meta, stream, counted, added, addedBytes, maxMessages, maxBytes)
      elseif counted then
        call('HDEL', meta, 'b')
      end
      if tonumber(now) >= renewal or call('PTTL', stream) < streamLife * 0.8 then -- the age may be longer than before
        call('HSET', meta, 'r', format('%d', tonumber(now) + streamLife / 10))
        call('PEXPIRE', meta, metaLife)
        call('PEXPIRE', stream, streamLife)
        if pcall('PEXPIRE', meta .. ':state', streamLife) == 1 then
          prune(meta .. ':state', streamLife)
        end
      end
    end
  end
end
if ARGV[4] == '1' then
  results[n + 1] = lineage
end
return results
