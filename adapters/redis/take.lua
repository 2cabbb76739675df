-- KEYS[1] is the bucket of one call. ARGV is the units that flow in a microsecond, the
-- units of a full bucket, what is needed, or given back if that is negative, and how many
-- units of what is needed may still have to flow in; without it, none.
-- The reply is what the bucket held before.
local key = KEYS[1]
local value = call('GET', key)
local per_micro, full, need, wait = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4] or 0)
local debt, ahead, is_blocked = 0, 0, nil
if value then
  debt, ahead, is_blocked = parse(value, per_micro)
  if is_blocked then
    return is_blocked
  end
end
-- More debt than may be: the clock has stepped back, or the capacity was more. The
-- bucket is empty then, and no longer than it takes to fill.
local too_much = debt > full + ahead
if too_much then
  debt, ahead = full, 0
end
local held = full - debt
local affordable = need > 0 and need <= full and need <= held + wait
if affordable or need < 0 and debt > 0 then
  debt = debt + need
elseif not too_much then
  return held
end
if debt > 0 then
  store(key, debt, per_micro, full, math.max(ahead, wait))
else
  call('DEL', key)
end
return held
