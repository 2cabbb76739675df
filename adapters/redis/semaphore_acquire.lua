-- This script acquires a permit or renews its lease. KEYS[1] is a sorted set of the permits of
-- a key: their holders, by the ends of their leases in milliseconds since 1970. ARGV is the
-- holder, the number of permits, the length of a lease in milliseconds, and 1 for a renewal.
-- The reply is 1 if the holder has a permit and otherwise 0, and the number of permits in use.
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local holder, permits, lease, is_renewal = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local lease_end = format('%.0f', now + lease)
-- If the clock went backwards, no lease may last longer than usual.
for _, late in ipairs(call('ZRANGEBYSCORE', KEYS[1], '(' .. lease_end, '+inf')) do
  call('ZADD', KEYS[1], lease_end, late)
end
call('ZREMRANGEBYSCORE', KEYS[1], '-inf', format('%.0f', now))
-- A renewal counts even if no permit is free: its holder works, whatever Redis has forgotten.
local in_use = call('ZCARD', KEYS[1])
if in_use >= permits and not is_renewal then
  return { 0, in_use }
end
call('ZADD', KEYS[1], lease_end, holder)
call('PEXPIRE', KEYS[1], format('%.0f', lease))
return { 1, call('ZCARD', KEYS[1]) }
