-- KEYS are buckets, one for each call, perhaps the same one twice. ARGV is the units
-- that flow in a microsecond, the units of a full bucket, and what each call needs.
-- The reply is what each bucket held before its call: one number for one call.
--
-- A bucket is stored as the time at which it will be full, in microseconds, and how
-- many units before the end of that microsecond, if any: "1730000000000000:12". All
-- numbers stay below 2^53, so doubles hold them exactly.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local per_micro, full = tonumber(ARGV[1]), tonumber(ARGV[2])

local function debt_of(value)
  if not value then
    return 0
  end
  local colon = string.find(value, ':', 1, true)
  if not colon then
    return (tonumber(value) - now) * per_micro
  end
  return (tonumber(string.sub(value, 1, colon - 1)) - now) * per_micro - tonumber(string.sub(value, colon + 1))
end

local function store(key, debt)
  local micros = math.ceil(debt / per_micro)
  local value = string.format('%.0f', now + micros)
  local early = micros * per_micro - debt
  if early > 0 then
    value = value .. string.format(':%.0f', early)
  end
  redis.call('SET', key, value, 'PX', string.format('%.0f', math.ceil(micros / 1000)))
end

local values = redis.call('MGET', unpack(KEYS))
local debts, changed, replies = {}, {}, {}
for i, key in ipairs(KEYS) do
  local need = tonumber(ARGV[i + 2])
  local debt = debts[key] or math.max(debt_of(values[i]), 0)
  -- More than full: the clock has stepped back, or the capacity was more. The bucket is
  -- empty then, and no longer than it takes to fill.
  if debt > full then
    debt = full
    changed[key] = true
  end
  replies[i] = full - debt
  if need > 0 and need <= full - debt then
    debt = debt + need
    changed[key] = true
  end
  debts[key] = debt
end
for key in pairs(changed) do
  store(key, debts[key])
end
if #KEYS == 1 then
  return replies[1]
end
return replies
