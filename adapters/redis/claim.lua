-- KEYS are a route's :remaining, its :limit and global, which other clients know; its
-- :window and :flights, and global:places, which are ours.
-- ARGV is the request's id, the lease, the global limit or 0, and its time. Times are
-- milliseconds.
-- The reply is 0 and when the request's window was opened, or how long to wait and 0.
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local remaining_, limit_, global_, window_, flights_, places_ = unpack(KEYS)
local id, lease, most, per = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local function text(number)
  return format('%.0f', number)
end

local function wait(milliseconds)
  return { math.max(milliseconds, 1), 0 }
end

-- Whose expiry was never set is of a client that died on the way.
local function left(key)
  local ttl = call('PTTL', key)
  if ttl == -1 then
    call('PEXPIREAT', key, text(now + lease))
    ttl = lease
  end
  return ttl
end

-- A response may come at any time: the longer it has taken, the longer the wait.
local function ask_again()
  local first = tonumber(call('ZRANGE', flights_, 0, 0, 'WITHSCORES')[2])
  if not first then
    return 250
  end
  local taken = lease - (first - now)
  return math.floor(math.min(first - now + 1, math.max(5, math.min(taken / 2, 250))))
end

-- A key lives until its time to live is below 0.
local pause = left(global_)
if pause >= 0 then
  return wait(pause + 1)
end
if most > 0 then
  call('ZREMRANGEBYSCORE', places_, '-inf', text(now - 1))
  if call('ZCARD', places_) >= most then
    local soonest = tonumber(call('ZRANGE', places_, 0, 0, 'WITHSCORES')[2])
    return wait(math.min(soonest - now + 1, per))
  end
end

local function take(opened)
  if most > 0 then
    call('ZADD', places_, text(now + lease), id)
    call('PEXPIREAT', places_, text(now + math.max(lease, per)))
  end
  return { 0, opened }
end

-- A limit below 0 is none. One of 0 may be none, and is found out.
local limit = tonumber(call('GET', limit_) or '') or 0
if limit < 0 then
  if call('GET', remaining_) == '0' and call('HGET', window_, 'known') == '1' then
    return wait(left(remaining_) + 1) -- a response has closed it though it has none
  end
  return take(tonumber(call('HGET', window_, 'opened') or '') or 0)
end
call('ZREMRANGEBYSCORE', flights_, '-inf', text(now - 1))
local remaining = tonumber(call('GET', remaining_) or '')
local window = call('HMGET', window_, 'opened', 'known', 'latest')
local opened, known, latest = tonumber(window[1] or ''), window[2] == '1', tonumber(window[3] or '') or 0
if not remaining and latest >= now then
  return wait(latest - now + 1)
end

local ends
if remaining and opened then
  ends = now + left(remaining_)
else
  -- What is under way may arrive in this window, too.
  local flying = call('ZCARD', flights_)
  if remaining then -- another client has opened it
    ends = now + left(remaining_)
    call('DECRBY', remaining_, flying)
  else
    ends = now + lease
    if math.max(limit, 1) <= flying then
      return wait(ask_again())
    end
    call('SET', remaining_, text(math.max(limit, 1) - flying))
    call('PEXPIREAT', remaining_, text(ends))
  end
  remaining = (remaining or math.max(limit, 1)) - flying
  opened, known = time[1] * 1000000 + time[2], false
  call('HSET', window_, 'opened', text(opened), 'limit', text(limit), 'known', '0', 'latest', text(latest))
  call('PEXPIREAT', window_, text(ends))
end
if remaining <= 0 then
  if known then
    return wait(ends - now + 1)
  end
  return wait(math.min(ends - now + 1, ask_again()))
end
call('DECR', remaining_)
call('ZADD', flights_, text(now + lease), id)
call('PEXPIREAT', flights_, text(now + lease))
return take(opened)
