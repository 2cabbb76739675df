-- This script executes many calls as limiter_consume_one.lua executes each, without
-- reservations. KEYS are their buckets; a bucket may occur several times. ARGV is the units
-- that return in a microsecond, the units of a full bucket, and for each call the units to
-- take, or to refund if negative.
-- The reply is what each bucket held before its call, in units.
local per_micro, full = tonumber(ARGV[1]), tonumber(ARGV[2])
local values, debts, aheads, replies = call('MGET', unpack(KEYS)), {}, {}, {}
for i = 1, #KEYS do
  local key, units, value = KEYS[i], tonumber(ARGV[i + 2]), values[i]
  local debt, ahead, is_blocked = debts[key], aheads[key] or 0, nil
  if not debt then
    local plain = value and tonumber(value) -- the usual case
    if plain then
      debt = plain > now and (plain - now) * per_micro or 0
    elseif value then
      debt, ahead, is_blocked = parse(value, per_micro)
    else
      debt = 0
    end
  end
  local too_much = debt > full and debt > full + ahead
  if too_much then
    debt, ahead = full, 0
  end
  local held = full - debt
  replies[i] = held
  if is_blocked then
    replies[i] = is_blocked
  elseif units > 0 and units <= held or units < 0 and debt > 0 then
    debt = debt + units
  else
    units = 0
  end
  if (units ~= 0 or too_much) and not is_blocked then
    if debt > 0 then
      store(key, debt, per_micro, full, ahead)
    else
      debt = 0
      call('DEL', key)
    end
    debts[key] = debt
    if ahead > 0 then
      aheads[key] = ahead
    end
  end
end
return replies
