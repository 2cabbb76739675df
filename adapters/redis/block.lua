-- KEYS[1] is a bucket, and ARGV[1] how many microseconds it will be blocked. At 0 it is
-- filled.
local micros = tonumber(ARGV[1])
if micros == 0 then
  call('DEL', KEYS[1])
else
  call('SET', KEYS[1], format('!%.0f', now + micros), 'PX', format('%.0f', ceil(micros / 1000)))
end
return {}
