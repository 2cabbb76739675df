-- This script executes one call with conditions of its own. KEYS[1] is its bucket. ARGV is the
-- units that return in a microsecond, the units of a full bucket, the suffix of the policy, the
-- largest number of units to take, the lowest balance that the call may leave, which is negative
-- for a deficit, a divisor: the call takes the largest multiple of it that is possible; and for
-- negative units that are undone, when they were taken, or 0.
-- For a lease, further ones are its identifier, its microseconds, and how many leases a bucket may have;
-- for the mark of a receipt, 0, its microseconds, and how many marks.
-- The reply is what the bucket held before, in units, and the time; the microseconds until the first
-- lease ends that it has afterwards, or 0; and 1 if it may have no more leases.
local key, per_micro, full, suffix = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local units, lowest, divisor, since = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local value = call('GET', key)
local missing, outdated, is_blocked, leases = 0, false, nil, nil
if value then
  missing, outdated, is_blocked, leases = read(key, value, per_micro, full, suffix)
  if is_blocked then
    return { is_blocked, now, 0, 0 }
  end
end
local held, taken, has_all = full - missing, nil, 0
if units >= 0 then
  taken = math.max(math.min(units, math.floor((held - lowest) / divisor) * divisor), 0)
elseif since == 0 then
  taken = math.max(units, -missing)
elseif value and string.sub(value, -#suffix) == suffix then
  local entries = parse_leases(leases)
  local mark = find_mark(entries, since)
  lower_leases(entries, math.min(head_low(leases), missing))
  if mark then
    taken = -give_back(entries, -units, mark.low)
  else
    taken = -give_back(entries, math.min(math.max(-units - math.max(now - since, 0) * per_micro, 0), missing))
  end
  leases = leases and format_leases(entries, tonumber(string.sub(leases, 2, 17)), no_low)
else
  taken = 0 -- another policy has written the bucket, which may refill faster
end
if ARGV[8] == '0' and taken > 0 then
  leases = add_mark(leases, now, ARGV[9], ARGV[10], missing, missing + taken)
elseif ARGV[8] and ARGV[8] ~= '0' then
  if has_leases(leases, ARGV[10]) then
    taken, has_all = 0, 1
  elseif taken > 0 then
    leases = add_lease(leases, now, ARGV[9], ARGV[8], taken, missing, missing + taken, '')
  end
end
if taken ~= 0 or outdated then
  write(key, missing + taken, per_micro, full, suffix, leases)
end
return { held, now, first_end(leases, now), has_all }
