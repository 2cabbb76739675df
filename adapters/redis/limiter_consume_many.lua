-- This script executes many calls as limiter_consume_one.lua executes each, without
-- reservations. KEYS are their buckets; a bucket may occur several times. ARGV is the units
-- that return in a microsecond, the units of a full bucket, and for each call the units to
-- take, or to refund if negative.
-- The reply is what each bucket held before its call, in units.
local per_micro, full = tonumber(ARGV[1]), tonumber(ARGV[2])
local values, missing_units, aheads, replies = call('MGET', unpack(KEYS)), {}, {}, {}
for i = 1, #KEYS do
  local key, units, value = KEYS[i], tonumber(ARGV[i + 2]), values[i]
  local missing, ahead, is_blocked = missing_units[key], aheads[key] or 0, nil
  if not missing then
    local plain = value and tonumber(value) -- the usual case
    if plain then
      missing = plain > now and (plain - now) * per_micro or 0
    elseif value then
      missing, ahead, is_blocked = parse(value, per_micro)
    else
      missing = 0
    end
  end
  local too_much = missing > full and missing > full + ahead
  if too_much then
    missing, ahead = full, 0
  end
  local held = full - missing
  replies[i] = held
  if is_blocked then
    replies[i] = is_blocked
  elseif units > 0 and units <= held or units < 0 and missing > 0 then
    missing = missing + units
  else
    units = 0
  end
  if (units ~= 0 or too_much) and not is_blocked then
    if missing > 0 then
      store(key, missing, per_micro, full, ahead)
    else
      missing = 0
      call('DEL', key)
    end
    missing_units[key] = missing
    if ahead > 0 then
      aheads[key] = ahead
    end
  end
end
return replies
