-- This script executes one call. KEYS[1] is its bucket. ARGV is the units that return in a
-- microsecond, the units of a full bucket, the units to take, or to refund if negative, and
-- the largest deficit that the call may leave (optional, 0).
-- The reply is what the bucket held before, in units.
local key = KEYS[1]
local value = call('GET', key)
local per_micro, full, units, ahead_allowed = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4] or 0)
local missing, ahead, is_blocked = 0, 0, nil
if value then
  missing, ahead, is_blocked = parse(value, per_micro)
  if is_blocked then
    return is_blocked
  end
end
-- More units are missing than is possible: the clock went backwards, or the capacity was larger.
-- Then the bucket counts as empty, and fills as usual.
local too_much = missing > full + ahead
if too_much then
  missing, ahead = full, 0
end
local held = full - missing
local affordable = units > 0 and units <= full and units <= held + ahead_allowed
if affordable or units < 0 and missing > 0 then
  missing = missing + units
elseif not too_much then
  return held
end
if missing > 0 then
  store(key, missing, per_micro, full, math.max(ahead, ahead_allowed))
else
  call('DEL', key)
end
return held
