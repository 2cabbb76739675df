-- KEYS are the buckets of many calls, perhaps the same one twice. ARGV is the units that
-- flow in a microsecond, the units of a full bucket, and what each call needs, or gives
-- back if that is negative. The reply is what each bucket held before its call. It
-- does for many calls what take.lua does for one.
local per_micro, full = tonumber(ARGV[1]), tonumber(ARGV[2])
local values, debts, aheads, replies = call('MGET', unpack(KEYS)), {}, {}, {}
for i = 1, #KEYS do
  local key, need, value = KEYS[i], tonumber(ARGV[i + 2]), values[i]
  local debt, ahead, is_blocked = debts[key], aheads[key] or 0, nil
  if not debt then
    local plain = value and tonumber(value) -- most are
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
  elseif need > 0 and need <= held or need < 0 and debt > 0 then
    debt = debt + need
  else
    need = 0
  end
  if (need ~= 0 or too_much) and not is_blocked then
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
