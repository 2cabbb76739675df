-- This script settles a lease. KEYS[1] is its bucket. ARGV is the units that return in a microsecond,
-- the units of a full bucket, the suffix of the policy, the units to take if the bucket does not have
-- the lease, its identifier, the units to take if it has, negative if they return, 1 if they may, and
-- how many settled leases a bucket may have.
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
local entries = parse_leases(leases)
local lease = find_lease(entries, ARGV[5])
if lease then
  if lease.state == '-' then
    return {} -- again
  end
  change = excess
  if excess < 0 then
    lower_leases(entries, math.min(head_low(leases), missing))
    change = returns and lease.amount > 0 and -give_back(entries, -excess, lease.low) or 0
  end
  local low = excess < 0 and no_low or head_low(leases)
  settle_lease(entries, lease, now, ARGV[8])
  leases = format_leases(entries, tonumber(string.sub(leases, 2, 17)), low)
end
if lease or change > 0 then
  write(key, math.min(missing + change, 2^52), per_micro, full, suffix, leases)
end
return {}
