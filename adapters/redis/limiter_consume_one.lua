-- This script executes one call. KEYS[1] is its bucket. ARGV is the units that return in a
-- microsecond, the units of a full bucket, the suffix of the policy, and the units to take, or
-- to refund if negative.
-- The reply is what the bucket held before, in units. If the bucket has leases, it is a list like that
-- for many calls.
local key, per_micro, full, suffix, units = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local value = call('GET', key)
local missing, outdated, is_blocked, leases = 0, false, nil, nil
if value then
  missing, outdated, is_blocked, leases = read(key, value, per_micro, full, suffix)
  if is_blocked then
    return is_blocked
  end
end
local held = full - missing
local reply = leases and { held, 1, first_end(leases, now) } or held
if units > 0 and units <= held or units < 0 and missing > 0 then
  missing = missing + units
elseif not outdated then
  return reply
end
write(key, missing, per_micro, full, suffix, leases)
return reply
