-- KEYS are buckets, one for each call, perhaps the same one twice. ARGV is the units
-- that flow in a microsecond, the units of a full bucket, and what each call needs, or
-- gives back if that is negative.
-- The reply is what each bucket held before its call: one number for one call.
local per_micro, full = tonumber(ARGV[1]), tonumber(ARGV[2])
local values, debts, aheads, replies = call('MGET', unpack(KEYS)), {}, {}, {}
for i = 1, #KEYS do
  local key, need, value = KEYS[i], tonumber(ARGV[i + 2]), values[i]
  local debt, ahead, is_blocked = debts[key], aheads[key], nil
  if not debt then
    debt, ahead = 0, 0
    if value then
      local full_at = tonumber(value)
      if not full_at then
        debt, ahead, is_blocked = parse(value, per_micro)
      elseif full_at > now then
        debt = (full_at - now) * per_micro
      end
    end
  end
  -- More debt than may be: the clock has stepped back, or the capacity was more. The
  -- bucket is empty then, and no longer than it takes to fill.
  local too_much = debt > full + ahead
  if too_much then
    debt, ahead = full, 0
  end
  local held = full - debt
  replies[i] = is_blocked or held
  local taken = need <= held and need or need < 0 and debt > 0 and need or 0
  if not is_blocked and (taken < 0 and debt > 0 or taken > 0 or too_much) then
    debt = debt + taken
    if debt <= 0 then
      debt = 0
      call('DEL', key)
    else
      store(key, debt, per_micro, full, ahead)
    end
    debts[key], aheads[key] = debt, ahead
  end
end
if #KEYS == 1 then
  return replies[1]
end
return replies
