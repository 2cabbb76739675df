-- KEYS are the buckets of one call, which takes from all of them or from none. ARGV is, for
-- each, the units that flow in a microsecond, the units of a full bucket, and what the
-- call needs of it. The reply is what each bucket held before. Buckets are stored as
-- consume.lua says.
local call, ceil, format = redis.call, math.ceil, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local values, debts, replies = call('MGET', unpack(KEYS)), {}, {}
local admitted = true

local function debt_of(value, per_micro)
  if not value then
    return 0
  end
  local full_at = tonumber(value)
  if full_at then
    return (full_at - now) * per_micro
  end
  local colon = string.find(value, ':', 1, true)
  return (string.sub(value, 1, colon - 1) - now) * per_micro - string.sub(value, colon + 1)
end

for i = 1, #KEYS do
  local per_micro, full, need = tonumber(ARGV[3 * i - 2]), tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i])
  debts[i] = math.max(debt_of(values[i], per_micro), 0)
  replies[i] = full - math.min(debts[i], full)
  admitted = admitted and need <= replies[i]
end
for i, key in ipairs(KEYS) do
  local per_micro, full, need = tonumber(ARGV[3 * i - 2]), tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i])
  local taken = admitted and need or 0
  if taken > 0 or debts[i] > full then
    local debt = math.min(debts[i], full) + taken
    local micros = ceil(debt / per_micro)
    local early = micros * per_micro - debt
    local text = format('%.0f', now + micros)
    if early > 0 then
      text = text .. format(':%.0f', early)
    end
    call('SET', key, text, 'PX', format('%.0f', ceil(micros / 1000)))
  end
end
return replies
