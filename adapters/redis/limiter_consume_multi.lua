-- This script executes one call that takes from several buckets or from none. KEYS are the
-- buckets. ARGV is for each the units that return in a microsecond, the units of a full bucket,
-- and the units to take.
-- The reply is what each bucket held before, in units.
local values, buckets, replies = call('MGET', unpack(KEYS)), {}, {}
local admitted = true
for i = 1, #KEYS do
  local per_micro, full, units = tonumber(ARGV[3 * i - 2]), tonumber(ARGV[3 * i - 1]), tonumber(ARGV[3 * i])
  local missing, ahead, is_blocked = 0, 0, nil
  if values[i] then
    missing, ahead, is_blocked = parse(values[i], per_micro)
  end
  local too_much = missing > full + ahead
  if too_much then
    missing, ahead = full, 0
  end
  replies[i] = is_blocked or full - missing
  admitted = admitted and units <= replies[i]
  buckets[i] = {missing, per_micro, full, ahead, units, too_much}
end
for i, key in ipairs(KEYS) do
  local missing, per_micro, full, ahead, units, too_much = unpack(buckets[i])
  local taken = admitted and units or 0
  if taken > 0 or too_much then
    store(key, missing + taken, per_micro, full, ahead)
  end
end
return replies
