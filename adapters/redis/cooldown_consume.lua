-- This script executes one call. KEYS[1] is the record of its key. ARGV is the maximum per
-- window, the window and the penalty in microseconds, and the cost, or -1 to only read the
-- record.
-- The reply is: 0 if admitted, 1 if a penalty starts, 2 if a penalty is in effect; the calls in
-- the window; the microseconds until the same call can be admitted; the microseconds until the
-- record is empty.
--
-- A record is the end of the penalty and the times of the calls in the window, oldest first,
-- in microseconds since 1970: "0,1730000000000000,1730000000000001".
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local max_calls, window, penalty, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local until_, stamps = 0, {}
local first = true
for number in string.gmatch(call('GET', KEYS[1]) or '', '%d+') do
  number = tonumber(number)
  if first then
    -- If the clock went backwards, nothing may last longer than usual.
    until_, first = math.min(number, now + math.max(penalty, window)), false
  elseif number > now - window then
    stamps[#stamps + 1] = math.min(number, now)
  end
end

-- admits_at returns when that many calls can be admitted.
local function admits_at(count)
  local excess = #stamps + count - max_calls
  if excess <= 0 then
    return until_
  end
  return math.max(until_, stamps[excess] + window)
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
  return { 2, #stamps, admits_at(cost) - now, reset() }
end
if #stamps + cost > max_calls then
  until_ = now + penalty
  until_ = admits_at(cost)
  store()
  return { 1, #stamps, until_ - now, reset() }
end
for _ = 1, cost do
  stamps[#stamps + 1] = now
end
store()
return { 0, #stamps, 0, reset() }
