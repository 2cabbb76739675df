-- This file precedes both scripts of a budget. Times are in milliseconds since 1970, durations in
-- milliseconds.
--
-- KEYS[1..3]  :remaining and :limit of the route, and global; other clients use them too
-- KEYS[4]     :window of the route, a hash: opened, limit, known, latest, and at, the time when
--             the window's end was stored
-- KEYS[5]     :in-flight of the route, a sorted set: requests in flight by the end of their leases
-- KEYS[6]     global:requests, a sorted set: requests that count against the global limit by the
--             time at which they stop counting
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local remaining_key, limit_key, global_key, window_key, in_flight_key, global_requests_key = unpack(KEYS)

-- Lua would write a large number with an exponent.
local function text(number)
  return format('%.0f', number)
end

-- Moves the expiry of a key by the same time as the clock.
local function move_expiry(key, step)
  local ttl = call('PTTL', key)
  if ttl > step then
    call('PEXPIREAT', key, text(now + ttl - step))
  end
end

-- Returns opened, limit, known and latest of the window. If the clock went backwards since the
-- window's end was stored, the end moves with the clock: it is never later than when it was
-- stored, and never earlier than the API's own end.
local function read_window()
  local window = call('HMGET', window_key, 'opened', 'limit', 'known', 'latest', 'at')
  local latest = tonumber(window[4] or '') or 0
  local step = (tonumber(window[5] or '') or now) - now
  if step > 0 then
    if latest > 0 then
      latest = latest - step
    end
    move_expiry(remaining_key, step)
    move_expiry(window_key, step)
    call('HSET', window_key, 'latest', text(latest), 'at', text(now))
  end
  return window[1], tonumber(window[2] or ''), window[3] == '1', latest
end

-- Returns the time to live of global, which ends as a window's end does. Its value says when it
-- was set, unless another client has set it.
local function pause_left()
  local ttl = call('PTTL', global_key)
  local set_at = ttl >= 0 and string.match(call('GET', global_key), '^set at (%d+)$')
  local step = set_at and set_at - now or 0
  if step > 0 and ttl > step then
    ttl = ttl - step
    call('SET', global_key, 'set at ' .. text(now), 'PX', text(ttl))
  end
  return ttl
end
