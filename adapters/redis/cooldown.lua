-- KEYS[1] is a key's record. ARGV is how many may come in a window, how long the window
-- and the penalty are in microseconds, and how many come now, or -1 to look.
-- The reply is: 0 admitted, 1 a penalty starts, 2 a penalty lasts; how many count; the
-- microseconds until the same can be admitted; those until nothing counts any more.
--
-- A record is when the penalty ends, and when each of those that count came, oldest
-- first, in microseconds since 1970: "0,1730000000000000,1730000000000001".
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local most, window, penalty, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local until_, stamps = 0, {}
local first = true
for number in string.gmatch(call('GET', KEYS[1]) or '', '%d+') do
  number = tonumber(number)
  if first then
    -- Where the clock has stepped back, nothing lasts longer than it may.
    until_, first = math.min(number, now + math.max(penalty, window)), false
  elseif number > now - window then
    stamps[#stamps + 1] = math.min(number, now)
  end
end

local function room(count)
  local too_many = #stamps + count - most
  if too_many <= 0 then
    return until_
  end
  return math.max(until_, stamps[too_many] + window)
end

local function reset()
  return math.max(until_, (stamps[#stamps] or now - window) + window, now) - now
end

local function store()
  local record = { format('%.0f', until_) }
  for i, stamp in ipairs(stamps) do
    record[i + 1] = format('%.0f', stamp)
  end
  call('SET', KEYS[1], table.concat(record, ','), 'PX', format('%.0f', math.ceil(reset() / 1000)))
end

if cost < 0 then
  return { until_ > now and 2 or 0, #stamps, math.max(until_ - now, 0), reset() }
end
if until_ > now then
  return { 2, #stamps, room(cost) - now, reset() }
end
if #stamps + cost > most then
  until_ = now + penalty
  until_ = room(cost)
  store()
  return { 1, #stamps, until_ - now, reset() }
end
for _ = 1, cost do
  stamps[#stamps + 1] = now
end
store()
return { 0, #stamps, 0, reset() }
