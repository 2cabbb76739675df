-- KEYS[1] is the places of a key: who holds each, and when its lease ends, in milliseconds
-- since 1970. ARGV is who wants one, how many there are, and how long a lease is. Who has
-- one already renews its lease.
-- The reply is 1 if there was one and otherwise 0, and how many are taken.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local holder, most, lease = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
local taken = redis.call('ZCARD', KEYS[1])
if taken >= most and not redis.call('ZSCORE', KEYS[1], holder) then
  return { 0, taken }
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now + lease), holder)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', lease))
return { 1, redis.call('ZCARD', KEYS[1]) }
