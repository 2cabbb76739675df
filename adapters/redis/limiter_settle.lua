-- This script settles a lease. KEYS[1] is its bucket. ARGV is the units that return in a microsecond,
-- the units of a full bucket, the suffix of the policy, the units to take if the bucket does not have
-- the lease, its identifier, the units to take if it has, negative if they return, and 1 if they may.
local key, per_micro, full, suffix = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local change, excess, returns = tonumber(ARGV[4]), tonumber(ARGV[6]), ARGV[7] == '1'
local value = call('GET', key)
local missing, is_blocked, leases, _ = 0, nil, nil, nil
if value then
  missing, _, is_blocked, leases = read(key, value, per_micro, full, suffix)
  if is_blocked then
    return {}
  end
end
local settled, units, taken = settle_lease(leases, ARGV[5])
if settled then
  if not units then
    return {} -- again
  end
  change = excess
  if excess < 0 then
    local left = returns and math.max(units - (now - taken) * per_micro, 0) or 0
    change = math.max(excess, -left)
  end
end
if settled or change > 0 then
  write(key, math.min(missing + change, 2^52), per_micro, full, suffix, settled or leases)
end
return {}
