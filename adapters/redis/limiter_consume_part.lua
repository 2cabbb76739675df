-- This script executes one call with conditions of its own. KEYS[1] is its bucket. ARGV is the
-- units that return in a microsecond, the units of a full bucket, the suffix of the policy, the
-- largest number of units to take, the lowest balance that the call may leave, which is negative
-- for a deficit, and a divisor: the call takes the largest multiple of it that is possible.
-- The reply is what the bucket held before, in units.
local key, per_micro, full, suffix = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local units, lowest, divisor = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local value = call('GET', key)
local missing, outdated, is_blocked = 0, false, nil
if value then
  missing, outdated, is_blocked = read(key, value, per_micro, full, suffix)
  if is_blocked then
    return { is_blocked }
  end
end
local held = full - missing
local taken = math.min(units, math.floor((held - lowest) / divisor) * divisor)
if taken > 0 or outdated then
  write(key, missing + math.max(taken, 0), per_micro, full, suffix)
end
return { held }
