-- KEYS are buckets, one for each call, perhaps the same one twice. ARGV is the units
-- that flow in a microsecond, the units of a full bucket, and what each call needs, or
-- gives back if that is negative.
-- The reply is what each bucket held before its call: one number for one call.
--
-- A bucket is stored as the time at which it will be full, in microseconds, and how
-- many units before the end of that microsecond, if any: "1730000000000000:12". All
-- numbers stay below 2^53, so doubles hold them exactly.
local call, ceil, format = redis.call, math.ceil, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local per_micro, full = tonumber(ARGV[1]), tonumber(ARGV[2])

local function store(key, debt)
  local micros = ceil(debt / per_micro)
  local early = micros * per_micro - debt
  local text = format('%.0f', now + micros)
  if early > 0 then
    text = text .. format(':%.0f', early)
  end
  call('SET', key, text, 'PX', format('%.0f', ceil(micros / 1000)))
end

local values, latest, replies = call('MGET', unpack(KEYS)), {}, {}
for i = 1, #KEYS do
  local key, need, value = KEYS[i], tonumber(ARGV[i + 2]), values[i]
  local debt = latest[key]
  if not debt then
    debt = 0
    if value then
      local full_at = tonumber(value)
      if full_at then
        debt = (full_at - now) * per_micro
      else
        local colon = string.find(value, ':', 1, true)
        debt = (string.sub(value, 1, colon - 1) - now) * per_micro - string.sub(value, colon + 1)
      end
      if debt < 0 then
        debt = 0
      end
    end
  end
  local held = debt <= full and full - debt or 0
  replies[i] = held
  local taken = need <= held and need or 0
  -- More debt than full: the clock has stepped back, or the capacity was more. The bucket
  -- is empty then, and no longer than it takes to fill.
  if taken < 0 and debt > 0 or taken > 0 or debt > full then
    debt = full - held + taken
    if debt <= 0 then
      debt = 0
      call('DEL', key)
    else
      store(key, debt)
    end
    latest[key] = debt
  end
end
if #KEYS == 1 then
  return replies[1]
end
return replies
