-- This script blocks a key. KEYS[1] is its record, ARGV[1] the microseconds for which it is blocked.
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local micros = tonumber(ARGV[1])
local millis = math.ceil(micros / 1000)
call('SET', KEYS[1], format('!%.0f:%.0f', now + micros, now), 'PX', format('%.0f', millis))
return {}
