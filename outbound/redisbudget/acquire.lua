-- Acquires one request to a route, or returns how long to wait.
--
-- ARGV[1..4]  ID of the request, lease, global limit (0 if none), period of the global limit
--
-- Returns {0, when the request's window was opened} or {how long to wait, 0}.
local id, lease, global_limit, global_per = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local function wait(milliseconds)
  return { math.max(milliseconds, 1), 0 }
end

-- Returns the time to live of a key. A key without expiry belongs to a client that died before
-- it set one, so the key gets one lease.
local function time_left(key)
  local ttl = call('PTTL', key)
  if ttl == -1 then
    call('PEXPIREAT', key, text(now + lease))
    ttl = lease
  end
  return ttl
end

-- Returns how long to wait for a response that may arrive at any time. The delay grows with the
-- time that the oldest request in flight has taken.
local function poll_delay()
  local lease_end = tonumber(call('ZRANGE', in_flight_key, 0, 0, 'WITHSCORES')[2])
  if not lease_end then
    return 250
  end
  local elapsed = lease - (lease_end - now)
  return math.floor(math.min(lease_end - now + 1, math.max(5, math.min(elapsed / 2, 250))))
end

-- Removes the requests that no longer count. If the clock went backwards, none may count longer
-- than usual.
local function drop_expired(requests_key, longest)
  local latest = text(now + longest)
  for _, late in ipairs(call('ZRANGEBYSCORE', requests_key, '(' .. latest, '+inf')) do
    call('ZADD', requests_key, latest, late)
  end
  call('ZREMRANGEBYSCORE', requests_key, '-inf', text(now - 1))
end

-- A key with a time to live of 0 still exists, so every wait for a key is one longer than its
-- time to live.
local pause = pause_left()
if pause == -1 then
  pause = time_left(global_key)
end
if pause >= 0 then
  return wait(pause + 1)
end
if global_limit > 0 then
  drop_expired(global_requests_key, math.max(lease, global_per + 1))
  if call('ZCARD', global_requests_key) >= global_limit then
    local first = tonumber(call('ZRANGE', global_requests_key, 0, 0, 'WITHSCORES')[2])
    return wait(math.min(first - now + 1, global_per))
  end
end

local function granted(opened)
  if global_limit > 0 then
    call('ZADD', global_requests_key, text(now + lease), id)
    call('PEXPIREAT', global_requests_key, text(now + math.max(lease, global_per)))
  end
  return { 0, opened }
end

local opened, _, known, latest = read_window()
opened = tonumber(opened or '')

-- A limit below 0 means that there is none. A limit of 0 counts as unknown: the convention uses
-- it for "no limit", and an API that permits nothing may report it.
local limit = tonumber(call('GET', limit_key) or '') or 0
if limit < 0 then
  if known and call('GET', remaining_key) == '0' then
    return wait(time_left(remaining_key) + 1) -- a rejection has closed the route
  end
  return granted(opened or 0)
end
drop_expired(in_flight_key, lease)
local remaining = tonumber(call('GET', remaining_key) or '')
if not remaining and latest >= now then
  return wait(latest - now + 1) -- another client has deleted :remaining before the window's end
end

local ends_at
if remaining and opened then
  ends_at = now + time_left(remaining_key)
else
  -- A new window. Requests in flight may arrive in it, so they count.
  local in_flight = call('ZCARD', in_flight_key)
  if remaining then -- another client has opened the window
    ends_at = now + time_left(remaining_key)
    call('DECRBY', remaining_key, in_flight)
  else
    ends_at = now + lease
    if math.max(limit, 1) <= in_flight then
      return wait(poll_delay())
    end
    call('SET', remaining_key, text(math.max(limit, 1) - in_flight))
    call('PEXPIREAT', remaining_key, text(ends_at))
  end
  remaining = (remaining or math.max(limit, 1)) - in_flight
  opened, known = time[1] * 1000000 + time[2], false
  call('HSET', window_key, 'opened', text(opened), 'limit', text(limit), 'known', '0', 'latest', text(latest), 'at', text(now))
  call('PEXPIREAT', window_key, text(ends_at))
end
if remaining <= 0 then
  if known then
    return wait(ends_at - now + 1)
  end
  return wait(math.min(ends_at - now + 1, poll_delay()))
end
call('DECR', remaining_key)
call('ZADD', in_flight_key, text(now + lease), id)
call('PEXPIREAT', in_flight_key, text(now + lease))
return granted(opened)
