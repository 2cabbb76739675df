-- Acquires one request to a route, or returns how long to wait. Times are in milliseconds.
--
-- KEYS[1..3]  :remaining and :limit of the route, and global; other clients use them too
-- KEYS[4]     :window of the route, a hash: opened, limit, known, latest
-- KEYS[5]     :flights of the route, a sorted set: requests in flight by the end of their leases
-- KEYS[6]     global:places, a sorted set: requests that count against the global limit by the
--             time at which they stop counting
-- ARGV[1..4]  ID of the request, lease, global limit (0 if none), period of the global limit
--
-- Returns {0, when the request's window was opened} or {how long to wait, 0}.
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local remaining_key, limit_key, global_key, window_key, in_flight_key, global_requests_key = unpack(KEYS)
local id, lease, global_limit, global_per = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

-- Lua would write a large number with an exponent.
local function text(number)
  return format('%.0f', number)
end

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

-- A key with a time to live of 0 still exists, so every wait for a key is one longer than its
-- time to live.
local pause = time_left(global_key)
if pause >= 0 then
  return wait(pause + 1)
end
if global_limit > 0 then
  call('ZREMRANGEBYSCORE', global_requests_key, '-inf', text(now - 1))
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

-- A limit below 0 means that there is none. A limit of 0 counts as unknown: the convention uses
-- it for "no limit", and an API that permits nothing may report it.
local limit = tonumber(call('GET', limit_key) or '') or 0
if limit < 0 then
  if call('GET', remaining_key) == '0' and call('HGET', window_key, 'known') == '1' then
    return wait(time_left(remaining_key) + 1) -- a rejection has closed the route
  end
  return granted(tonumber(call('HGET', window_key, 'opened') or '') or 0)
end
call('ZREMRANGEBYSCORE', in_flight_key, '-inf', text(now - 1))
local remaining = tonumber(call('GET', remaining_key) or '')
local window = call('HMGET', window_key, 'opened', 'known', 'latest')
local opened, known, latest = tonumber(window[1] or ''), window[2] == '1', tonumber(window[3] or '') or 0
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
  call('HSET', window_key, 'opened', text(opened), 'limit', text(limit), 'known', '0', 'latest', text(latest))
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
