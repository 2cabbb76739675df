-- KEYS[1] is a bucket. ARGV is the units that flow in a microsecond, the units of a full
-- bucket, what is needed, and how many units of that may still have to flow in.
-- The reply is what the bucket held before.
local key, value = KEYS[1], call('GET', KEYS[1])
local per_micro, full, need, wait = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local debt, ahead, is_blocked = 0, 0, nil
if value then
  debt, ahead, is_blocked = parse(value, per_micro)
end
if is_blocked then
  return {is_blocked}
end
local too_much = debt > full + ahead
if too_much then
  debt, ahead = full, 0
end
local held = full - debt
local taken = need <= full and need <= held + wait and need or 0
if taken > 0 or too_much then
  store(key, debt + taken, per_micro, full, math.max(ahead, wait))
end
return {held}
