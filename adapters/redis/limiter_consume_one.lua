-- This script executes one call. KEYS[1] is its bucket. ARGV is the units that return in a
-- microsecond, the units of a full bucket, the suffix of the policy, and the units to take, or
-- to refund if negative.
-- The reply is what the bucket held before, in units. If the bucket has leases, it is a list like that
-- for many calls.
local key, per_micro, full, suffix, units = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local value, sub = call('GET', key), string.sub

-- Most calls find a bucket of this policy that will be full at a whole microsecond and has no leases,
-- and leave it like that. They do not need the functions.
if units >= 0 and (not value or sub(value, 17) == suffix) then
  local missing = value and math.max((sub(value, 1, 16) - now) * per_micro, 0) or 0
  local held, micros = full - missing, math.ceil((missing + units) / per_micro)
  if held >= 0 and (units > held or units == 0) then
    return held
  elseif held >= 0 and micros * per_micro == missing + units then
    call('SET', key, string.format('%016.0f', now + micros) .. suffix, 'PX', math.ceil(micros / 1000))
    return held
  end
end

local bucket = bucket_functions()
local missing, outdated, is_blocked, leases = 0, false, nil, nil
if value then
  missing, outdated, is_blocked, leases = bucket.read(key, value, per_micro, full, suffix)
  if is_blocked then
    return is_blocked
  end
end
local held = full - missing
local reply = leases and { held, 1, bucket.first_end(leases, now) } or held
if units > 0 and units <= held or units < 0 and missing > 0 then
  missing = missing + units
elseif not outdated then
  return reply
end
bucket.write(key, missing, per_micro, full, suffix, leases)
return reply
