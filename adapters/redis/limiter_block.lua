-- This script blocks a bucket. KEYS[1] is the bucket, ARGV[1] the microseconds for which it is
-- blocked. If that is 0, the script fills the bucket.
local micros = tonumber(ARGV[1])
if micros == 0 then
  call('DEL', KEYS[1])
else
  local ceil, format = math.ceil, string.format
  call('SET', KEYS[1], format('!%.0f:%.0f', now + micros, now), 'PX', format('%.0f', ceil(micros / 1000)))
end
return {}
