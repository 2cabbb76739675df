-- This script acquires a permit or renews its lease. KEYS[1] is a sorted set of the permits of
-- a key: their holders, by the ends of their leases in milliseconds since 1970. ARGV is the
-- holder, the number of permits, and the length of a lease in milliseconds.
-- The reply is 1 if the holder has a permit and otherwise 0, and the number of permits in use.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local holder, permits, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
local in_use = redis.call('ZCARD', KEYS[1])
if in_use >= permits and not redis.call('ZSCORE', KEYS[1], holder) then
  return { 0, in_use }
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now + lease), holder)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lease))
return { 1, redis.call('ZCARD', KEYS[1]) }
