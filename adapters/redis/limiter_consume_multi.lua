-- This script executes one call that takes from several buckets or from none. KEYS are the
-- buckets. ARGV is for each the units that return in a microsecond, the units of a full bucket,
-- the units to take, and the largest deficit that the call may leave.
-- The reply is what each bucket held before, in units.
local values, buckets, replies = call('MGET', unpack(KEYS)), {}, {}
local admitted = true
for i = 1, #KEYS do
  local per_micro, full, units, ahead_allowed = tonumber(ARGV[4 * i - 3]), tonumber(ARGV[4 * i - 2]), tonumber(ARGV[4 * i - 1]), tonumber(ARGV[4 * i])
  local missing, ahead, is_blocked = parse(values[i] or '0', per_micro)
  local too_much = missing > full + ahead
  if too_much then
    missing, ahead = full, 0
  end
  local held = full - missing
  replies[i] = is_blocked or held
  if is_blocked or units > full or units > 0 and units > held + ahead_allowed then
    admitted = false
  end
  buckets[i] = { missing, per_micro, full, math.max(ahead, ahead_allowed), units, too_much }
end
for i, key in ipairs(KEYS) do
  local missing, per_micro, full, ahead, units, too_much = unpack(buckets[i])
  local taken = admitted and units or 0
  if taken > 0 or too_much then
    store(key, missing + taken, per_micro, full, ahead)
  end
end
return replies
