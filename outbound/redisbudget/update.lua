-- Applies the response to an acquired request.
--
-- ARGV[1..4]   ID of the request, when its window was opened, lease, period of the global limit
--              (0 if there is none)
-- ARGV[5..8]   the response: limit (0 if unknown, -1 if there is none), remaining, time until the
--              window ends, time for which to send nothing (both 0 if unknown)
-- ARGV[9..10]  '1' if the rejection is global, '1' if the request was never sent
--
-- Returns {1}.
local id, request_opened, lease, global_per = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local limit, reported_remaining = tonumber(ARGV[5]), tonumber(ARGV[6])
local reset, retry, global, unsent = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] == '1', ARGV[10] == '1'
local limit_ttl, unlimited_ttl = 7 * 24 * 3600 * 1000, 3600 * 1000

-- now is rounded down to a millisecond, so one is added to every duration.
local function after(milliseconds)
  return now + milliseconds + 1
end

if global_per > 0 then
  if unsent then
    call('ZREM', global_requests_key, id)
  else
    call('ZADD', global_requests_key, 'XX', text(after(global_per)), id)
    call('PEXPIREAT', global_requests_key, text(after(math.max(lease, global_per))))
  end
end
if global and pause_left() < retry then
  call('SET', global_key, 'set at ' .. text(now), 'PX', text(retry + 1))
end

-- A response without headers must not remove a limit that an earlier response reported.
local stored_limit = tonumber(call('GET', limit_key) or '') or 0
if limit > 0 then
  call('SET', limit_key, text(limit), 'PX', text(limit_ttl))
elseif limit < 0 and stored_limit <= 0 then
  call('SET', limit_key, text(limit), 'PX', text(unlimited_ttl))
end

local was_in_flight = call('ZREM', in_flight_key, id) == 1
local closes = retry > 0 and not global
local reported_end = 0
if reset > 0 then
  reported_end = after(reset)
end
if closes then
  reported_end = math.max(reported_end, after(retry))
end
local opened, counted_max, known, latest = read_window() -- counted_max is the limit that remaining was counted from
local remaining = tonumber(call('GET', remaining_key) or '')
latest = math.max(reported_end, latest)
local ends_at
if remaining then
  ends_at = now + call('PTTL', remaining_key)
  if ends_at < now then -- another client has set no expiry yet
    ends_at = now + lease
  end
  if opened == request_opened then
    if limit > 0 then
      remaining = math.min(remaining + limit - math.max(counted_max, 1), reported_remaining)
      call('HSET', window_key, 'limit', text(limit))
    elseif was_in_flight and (unsent or counted_max == 0 and (global or retry == 0)) then
      remaining = remaining + 1 -- while the limit is unknown, each response permits one request
    end
    if reported_end > 0 and not known then
      ends_at = latest
      call('HSET', window_key, 'known', '1')
    end
  end
elseif reported_end > 0 then -- the response reveals a window of the API that is still open
  ends_at = reported_end
  remaining = math.min(reported_remaining, math.max(limit, 1)) - call('ZCARD', in_flight_key)
  opened = time[1] * 1000000 + time[2]
  call('HSET', window_key, 'opened', text(opened), 'limit', text(limit), 'known', '1')
end
if not remaining then
  return { 1 }
end
if closes then
  remaining = 0
end
ends_at = math.max(ends_at, latest)
call('SET', remaining_key, text(math.max(remaining, 0)))
call('PEXPIREAT', remaining_key, text(ends_at))
if opened or reported_end > 0 then
  call('HSET', window_key, 'latest', text(latest), 'at', text(now))
  call('PEXPIREAT', window_key, text(ends_at))
end
return { 1 }
