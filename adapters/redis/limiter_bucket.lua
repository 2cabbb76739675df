-- This file precedes every script about buckets. A bucket is stored as the time at which it
-- will be full, in microseconds, followed by the units by which it is full earlier than the
-- end of that microsecond, if any: "1730000000000000:12". After a reservation, more
-- units than a full bucket holds may be missing; the number of additional units follows:
-- "1730000000000000:12:5000". A blocked bucket is stored as the time at which the block ends:
-- "!1730000000000000". All numbers are below 2^53, so doubles represent them exactly.
local call, ceil, format = redis.call, math.ceil, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- Replies about a blocked bucket are this number minus the microseconds until the block ends.
local blocked = -2^52

-- parse returns the units that a bucket lacks, by how many these may exceed a full bucket, and
-- the reply if the bucket is blocked.
local function parse(value, per_micro)
  local plain = tonumber(value)
  if plain then
    return plain > now and (plain - now) * per_micro or 0, 0
  end
  if string.byte(value) == 33 then
    local left = string.sub(value, 2) - now
    return 0, 0, left > 0 and blocked - left or nil
  end
  local full_at, early, ahead = string.match(value, '^(%d+):?(%d*):?(%d*)$')
  local missing = (full_at - now) * per_micro - (tonumber(early) or 0)
  return missing > 0 and missing or 0, tonumber(ahead) or 0
end

local function store(key, missing, per_micro, full, ahead)
  local micros = ceil(missing / per_micro)
  local early = micros * per_micro - missing
  local text = format('%.0f', now + micros)
  if missing > full then
    text = text .. format(':%.0f:%.0f', early, ahead)
  elseif early > 0 then
    text = text .. format(':%.0f', early)
  end
  call('SET', key, text, 'PX', format('%.0f', ceil(micros / 1000)))
end

