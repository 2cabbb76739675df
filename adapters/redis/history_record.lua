-- Every script about topics goes on with this text. Metadata of a topic is a hash: e is the epoch, l
-- the lineage in which it began, o the last offset, pe and po the previous epoch and the offset at
-- which it ended, r when lifetimes are renewed, b the bytes of the stored packets if they are
-- limited, f the fence if it is not 0, c is 1 if the topic is closed.
local function unixMillis()
  local time = call('TIME')
  return time[1] .. string.sub('000000' .. time[2], -6, -4)
end

-- packetBytes returns the length of the packet in a frame.
local function packetBytes(frame)
  local key, start = string.match(frame, '^%S+ %d+ %d+ (-?%d+) ()')
  return #frame - start + 1 - math.abs(tonumber(key))
end

-- isExpired returns whether an entry of a stream is as old as maxAge at the time now.
local function isExpired(entry, now, maxAge)
  local at = string.match(entry[2][2], '^%S+ %d+ (%d+)')
  return tonumber(now) - tonumber(at) >= maxAge
end

-- firstUnexpired returns the offset of the first publication after an expired one that has not expired. That
-- of the last publication is top.
local function firstUnexpired(stream, expired, top, now, maxAge)
  local low, high = tonumber(string.match(expired[1], '^%d+')), top + 1
  while high - low > 1 do
    local middle = math.floor((low + high) / 2)
    local id = format('%d-0', middle)
    local entry = call('XRANGE', stream, id, id)[1]
    if entry and not isExpired(entry, now, maxAge) then
      high = middle
    else
      low = middle
    end
  end
  return high
end
