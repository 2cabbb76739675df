-- KEYS are those of claim.lua.
-- ARGV is the request's id, when its window was opened, the lease, and the time of the
-- global limit or 0; then what the response told: the limit, 0 if none and -1 if there is
-- none; what remains; how long the window lasts, and how long nothing is to be sent, 0 if
-- it did not tell; 1 if that is about all routes; and 1 if nothing was sent. Times are
-- milliseconds.
-- The reply is 1.
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local remaining_, limit_, global_, window_, flights_, places_ = unpack(KEYS)
local id, mine, lease, per = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local limit, told = tonumber(ARGV[5]), tonumber(ARGV[6])
local reset, retry, global, unsent = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] == '1', ARGV[10] == '1'
local limit_time, none_time = 7 * 24 * 3600 * 1000, 3600 * 1000

local function text(number)
  return format('%.0f', number)
end

-- Redis counts whole milliseconds, and this one is not over.
local function after(milliseconds)
  return now + milliseconds + 1
end

if per > 0 then
  if unsent then
    call('ZREM', places_, id)
  else
    call('ZADD', places_, 'XX', text(after(per)), id)
    call('PEXPIREAT', places_, text(after(math.max(lease, per))))
  end
end
if global and call('PTTL', global_) < retry then
  call('SET', global_, '1', 'PX', text(retry + 1))
end

-- A response without headers shows that there is no limit only if none ever had any.
local old = tonumber(call('GET', limit_) or '') or 0
if limit > 0 then
  call('SET', limit_, text(limit), 'PX', text(limit_time))
elseif limit < 0 and old <= 0 then
  call('SET', limit_, text(limit), 'PX', text(none_time))
end

local was_flying = call('ZREM', flights_, id) == 1
local closes = retry > 0 and not global
local ends = 0
if reset > 0 then
  ends = after(reset)
end
if closes then
  ends = math.max(ends, after(retry))
end
local remaining = tonumber(call('GET', remaining_) or '')
local window = call('HMGET', window_, 'opened', 'limit', 'known', 'latest')
local latest = math.max(ends, tonumber(window[4] or '') or 0)
local until_
if remaining then
  until_ = now + call('PTTL', remaining_)
  if until_ < now then -- another client has not said how long it lasts
    until_ = now + lease
  end
  if window[1] == mine then
    local assumed = tonumber(window[2])
    if limit > 0 then
      remaining = math.min(remaining + limit - math.max(assumed, 1), told)
      call('HSET', window_, 'limit', text(limit))
    elseif was_flying and (unsent or assumed == 0 and (global or retry == 0)) then
      remaining = remaining + 1 -- one at a time
    end
    if ends > 0 and window[3] == '0' then
      until_ = latest
      call('HSET', window_, 'known', '1')
    end
  end
elseif ends > 0 then -- the request counts in a window that was not known of
  until_ = ends
  remaining = math.min(told, math.max(limit, 1)) - call('ZCARD', flights_)
  local opened = time[1] * 1000000 + time[2]
  call('HSET', window_, 'opened', text(opened), 'limit', text(limit), 'known', '1')
end
if not remaining then
  return { 1 }
end
if closes then
  remaining = 0
end
until_ = math.max(until_, latest)
call('SET', remaining_, text(math.max(remaining, 0)))
call('PEXPIREAT', remaining_, text(until_))
if window[1] or ends > 0 then
  call('HSET', window_, 'latest', text(latest))
  call('PEXPIREAT', window_, text(until_))
end
return { 1 }
