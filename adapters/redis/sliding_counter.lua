-- This script executes one call of a sliding-window counter. KEYS[1] is the record of its key. ARGV
-- is the maximum per window; the window in milliseconds; what to do with the cost: "take", "look",
-- "upto", "charge", "refund" or "undo"; the cost; and for "undo" when the window began to which the tokens
-- belong, and for "take" and "look" how many microseconds the call may wait.
-- The reply is: 0 if allowed, 3 if denied; the tokens that count, rounded up, or the maximum while tokens
-- of the next window are reserved; the microseconds until the cost can be spent, or the same call can be
-- allowed, until no tokens count, until a denied key has more tokens, and until it has all; the tokens
-- that the call has taken; and when the window began to which they belong.
--
-- A record is "<window>:<start>:<previous>:<current>:<written>" or the same with ":<next>:<reserved at>": the
-- window in which it counts, when the current one began, the tokens of the previous and of the current one,
-- when the record was written, the tokens that are reserved in the next window, and when the last reserved
-- tokens of any window can be spent; times are milliseconds since 1970. Counts are at most twice the maximum, so products of a count and the window are at most 2^52, which
-- doubles represent.
local call, floor, ceil, format = redis.call, math.floor, math.ceil, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local max_calls, window, what = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local cost, stamp = tonumber(ARGV[4]), tonumber(ARGV[5])
local max_wait = (what == 'take' or what == 'look') and stamp or 0
local tick = floor(now / 1000)

local length, start, previous, current, reserved, reserved_at = window, 0, 0, 0, 0, 0
local moved = false
local stored = call('GET', KEYS[1])
local blocked = stored and block_reply(KEYS[1], stored, now, what == 'look')
if blocked then
  return blocked
elseif blocked == false then
  stored = false
end
if stored then
  local l, s, p, c, w, n, r = string.match(stored, '^(%d+):(%-?%d+):(%d+):(%d+):(%d+):?(%d*):?(%-?%d*)$')
  l, s, p, c, w, n, r = tonumber(l), tonumber(s), tonumber(p), tonumber(c), tonumber(w), tonumber(n) or 0, tonumber(r) or 0
  -- If the clock went backwards, the windows move with it, so that nothing lasts for the step.
  moved = tick < w
  if moved then
    s, r = s - (w - tick), r - (w - tick)
  end
  local passed = floor((tick - s) / l)
  if passed <= 2 then
    length, start, reserved_at = l, s + passed * l, r
    local counts = { p, c, n, 0, 0 }
    previous, current, reserved = counts[passed + 1], counts[passed + 2], counts[passed + 3]
  end
end
if previous + current + reserved == 0 then
  length, start, reserved_at = window, tick - tick % window, 0
end

-- counted returns how many tokens of the previous and the current window count, rounded up.
local function counted()
  return ceil(previous * (start + length - tick) / length) + current
end

-- closed reports whether no token can be spent in the current window: while tokens of the next one are
-- reserved, because those of the current one count in it, too, and by a policy with windows of another
-- length while any are, because they would return at another rate.
local function closed()
  return reserved > 0 or tick < reserved_at and length ~= window
end

-- micros returns how long it takes until a tick.
local function micros(at)
  return math.max(at * 1000 - now, 0)
end

-- fits_at returns the first tick at which a cost fits: one of the current window, or of one of the three
-- after it.
local function fits_at(tokens)
  local room = max_calls - tokens
  local in_next = room - reserved
  if in_next < 0 then -- in the window after the next one, reserved is previous
    return start + 3 * length - floor(room * length / reserved)
  elseif current > in_next then -- in the next one, current is previous
    return start + 2 * length - floor(in_next * length / current)
  elseif reserved > 0 then
    return start + length
  elseif counted() <= room then
    return tick
  end
  return start + length - floor((room - current) * length / previous)
end

-- allows_at returns the first tick at which a cost can be spent.
local function allows_at(tokens)
  return length == window and fits_at(tokens) or math.max(fits_at(tokens), reserved_at)
end

local function empty_at()
  return reserved > 0 and start + 3 * length or current > 0 and start + 2 * length or previous > 0 and start + length or 0
end

local function write()
  local millis = empty_at() - tick
  if millis <= 0 then
    call('DEL', KEYS[1])
    return
  end
  local record = format('%.0f:%.0f:%.0f:%.0f:%.0f', length, start, previous, current, tick)
  if reserved > 0 or tick < reserved_at then
    record = record .. format(':%.0f:%.0f', reserved, reserved_at)
  end
  call('SET', KEYS[1], record, 'PX', format('%.0f', millis))
end

local function reply(outcome, wait, more, all, taken, window_start)
  return { outcome, closed() and max_calls or counted(), wait, micros(empty_at()), more, all, taken, window_start }
end

if what == 'refund' or what == 'undo' then
  local function give_back(count, window_start)
    local newest = (what == 'refund' or stamp == window_start) and math.min(cost, count) or 0
    cost = cost - newest
    return count - newest
  end
  reserved = give_back(reserved, start + length)
  current = give_back(current, start)
  previous = give_back(previous, start - length)
  if stored then
    write()
  end
  return reply(0, 0, 0, 0, 0, start)
elseif what == 'charge' then
  current = math.max(current, math.min(current + cost, 2 * max_calls, floor(2 ^ 52 / length)))
  write()
  return reply(0, 0, 0, 0, 0, start)
end
if what == 'upto' and cost > 0 then
  cost = math.max(closed() and 1 or math.min(cost, max_calls - counted()), 1)
end
if cost > 0 and not closed() and counted() + cost <= max_calls then
  if length ~= window then
    -- Another policy has written the record. Its tokens count as those of a window that has
    -- just ended: as many as before, and they return at the rate of this policy.
    length, start, previous, current = window, tick, counted(), 0
  end
  current = current + cost
  if what ~= 'look' then
    write()
  end
  return reply(0, 0, 0, 0, cost, start)
elseif cost > 0 then
  local at = allows_at(cost)
  local reached_at = at * 1000
  if length == window then -- no tokens are reserved in windows of another policy
    local before = start + (floor((at - start) / length) - 1) * length
    reached_at = math.max(at * 1000 - max_wait, before * 1000)
  end
  if reached_at > now then
    if moved and what ~= 'look' then
      write()
    end
    local more = closed() and 1 or math.max(max_calls - counted(), 0) + 1
    return reply(3, reached_at - now, micros(allows_at(more)), micros(allows_at(max_calls)), 0, start)
  end
  local window_start = start
  if at >= start + length then
    window_start, reserved = start + length, reserved + cost
  else
    current = current + cost
  end
  reserved_at = math.max(reserved_at, at)
  if what ~= 'look' then
    write()
  end
  return reply(0, at * 1000 - now, 0, 0, cost, window_start)
end
if moved and what ~= 'look' then
  write()
end
return reply(0, 0, 0, 0, 0, start)
