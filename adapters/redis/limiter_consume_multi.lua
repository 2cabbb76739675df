-- This script executes one call that takes from several buckets or from none. KEYS are the
-- buckets. ARGV is for each the units that return in a microsecond, the units of a full bucket,
-- the suffix of the policy, the units to take, and the largest deficit that the call may leave.
-- The reply is the time, and for each bucket what it held before, in units, and the microseconds until
-- the first of its leases ends, or 0.
local values, buckets, replies = call('MGET', unpack(KEYS)), {}, { now }
local admitted = true
for i, key in ipairs(KEYS) do
  local per_micro, full, suffix = tonumber(ARGV[5 * i - 4]), tonumber(ARGV[5 * i - 3]), ARGV[5 * i - 2]
  local units, ahead = tonumber(ARGV[5 * i - 1]), tonumber(ARGV[5 * i])
  local missing, outdated, is_blocked, leases = 0, false, nil, nil
  if values[i] then
    missing, outdated, is_blocked, leases = read(key, values[i], per_micro, full, suffix)
  end
  local held = full - missing
  replies[2 * i] = is_blocked or held
  replies[2 * i + 1] = first_end(leases, now)
  if is_blocked or units > full or units > 0 and units > held + ahead then
    admitted = false
  end
  buckets[i] = { missing, per_micro, full, suffix, leases, units, outdated }
end
for i, key in ipairs(KEYS) do
  local missing, per_micro, full, suffix, leases, units, outdated = unpack(buckets[i], 1, 7)
  local taken = admitted and units or 0
  if taken > 0 or outdated then
    write(key, missing + taken, per_micro, full, suffix, leases)
  end
end
return replies
