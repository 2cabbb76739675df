-- This script executes many calls as limiter_consume_one.lua executes each. KEYS are their
-- buckets; a bucket may occur several times. ARGV is the units that return in a microsecond, the
-- units of a full bucket, the suffix of the policy, and for each call the units to take, or to
-- refund if negative.
-- The reply is what each bucket held before its call, in units, and then, for each call about a bucket
-- with leases, its index and the microseconds until the first of them ends.
local per_micro, full, suffix = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local values, missing_units, leases_of, replies = call('MGET', unpack(KEYS)), {}, {}, {}
local some_have_leases = false
local sub, max, ceil, format = string.sub, math.max, math.ceil, string.format
local bucket -- the functions, once a call needs them
for i = 1, #KEYS do
  local key, units, value = KEYS[i], tonumber(ARGV[i + 3]), values[i]
  local missing, leases, outdated, is_blocked = missing_units[key], leases_of[key], false, nil
  if not missing then
    missing = 0
    if value then
      missing = sub(value, 17) == suffix and max((sub(value, 1, 16) - now) * per_micro, 0)
      if not missing or missing > full then
        bucket = bucket or bucket_functions()
        missing, outdated, is_blocked, leases = bucket.read(key, value, per_micro, full, suffix)
      end
    end
  end
  local held = full - missing
  replies[i] = is_blocked or held
  if units > 0 and units <= held or units < 0 and missing > 0 then
    missing = missing + units
  else
    units = 0
  end
  if not is_blocked then
    if units ~= 0 or outdated then
      local micros = ceil(missing / per_micro)
      if not leases and missing > 0 and missing <= full and micros * per_micro == missing then -- as write
        call('SET', key, format('%016.0f', now + micros) .. suffix, 'PX', ceil(micros / 1000))
      else
        bucket = bucket or bucket_functions()
        bucket.write(key, missing, per_micro, full, suffix, leases)
      end
      missing_units[key] = max(missing, 0)
    end
    if leases and units < 0 then
      leases = bucket.lower_head(leases, max(missing, 0)) -- the next call may take what this one returns
    end
    leases_of[key] = leases
    some_have_leases = some_have_leases or leases
  end
end
for i = 1, some_have_leases and #KEYS or 0 do
  local leases = leases_of[KEYS[i]]
  if leases then
    replies[#replies + 1] = i
    replies[#replies + 1] = bucket.first_end(leases, now)
  end
end
return replies
