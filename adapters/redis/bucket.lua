-- What every script of buckets begins with. A bucket is stored as the time at which it
-- will be full, in microseconds, and how many units before the end of that microsecond,
-- if any: "1730000000000000:12". Behind a reservation, the debt may be more than a full
-- bucket, and the units that it may be more follow: "1730000000000000:12:5000". A
-- blocked bucket is stored as the time until which it is: "!1730000000000000". All
-- numbers stay below 2^53, so doubles hold them exactly.
local call, ceil, format = redis.call, math.ceil, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- What a blocked bucket is said to hold: this, less the microseconds that are left.
local blocked = -2^52

-- parse returns a bucket's debt, how much more than a full bucket that may be, and what
-- there is to say of it if it is blocked.
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
  local debt = (full_at - now) * per_micro - (tonumber(early) or 0)
  return debt > 0 and debt or 0, tonumber(ahead) or 0
end

local function store(key, debt, per_micro, full, ahead)
  local micros = ceil(debt / per_micro)
  local early = micros * per_micro - debt
  local text = format('%.0f', now + micros)
  if debt > full then
    text = text .. format(':%.0f:%.0f', early, ahead)
  elseif early > 0 then
    text = text .. format(':%.0f', early)
  end
  call('SET', key, text, 'PX', format('%.0f', ceil(micros / 1000)))
end

