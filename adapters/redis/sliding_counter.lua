-- This script executes one call of a sliding-window counter. KEYS[1] is the record of its key. ARGV
-- is the maximum per window; the window in milliseconds; what to do with the cost: "take", "look",
-- "upto", "refund" or "undo"; the cost; and for "undo" when the window began in which it was taken.
-- The reply is: 0 if allowed, 3 if denied; the tokens that count, rounded up; the microseconds until
-- the same call can be allowed, until no tokens count, until a denied key has more tokens, and until it
-- has all; the tokens that the call has taken; and when the window began.
--
-- A record is "<window>:<start>:<previous>:<current>:<written>": the window in which it counts, when
-- the current one began, the tokens of the previous and of the current one, and when the record was
-- written; times are milliseconds since 1970. Products of a count and a time stay below 2^53
-- wherever an exact one matters, so doubles represent them.
local call, floor, ceil, format = redis.call, math.floor, math.ceil, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local max_calls, window, what = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local cost, stamp = tonumber(ARGV[4]), tonumber(ARGV[5])
local tick = floor(now / 1000)

local length, start, previous, current = window, tick - tick % window, 0, 0
local moved = false
local stored = call('GET', KEYS[1])
local blocked = stored and block_reply(KEYS[1], stored, now, what == 'look')
if blocked then
  return blocked
elseif blocked == false then
  stored = false
end
if stored then
  local l, s, p, c, w = string.match(stored, '^(%d+):(%-?%d+):(%d+):(%d+):(%d+)$')
  l, s, p, c, w = tonumber(l), tonumber(s), tonumber(p), tonumber(c), tonumber(w)
  -- If the clock went backwards, the windows move with it, so that nothing lasts for the step.
  moved = tick < w
  if moved then
    s = s - (w - tick)
  end
  local passed = floor((tick - s) / l)
  if passed == 0 then
    length, start, previous, current = l, s, p, c
  elseif passed == 1 then
    length, start, previous = l, s + l, c
  end
end

-- counted returns how many tokens count, rounded up.
local function counted()
  return ceil(previous * (start + length - tick) / length) + current
end

-- micros returns how long it takes until a tick.
local function micros(at)
  return math.max(at * 1000 - now, 0)
end

-- allows_at returns the first tick at which a denied cost can be allowed.
local function allows_at(tokens)
  local room = max_calls - tokens
  if current > room then -- not in this window; in the next one, current is previous
    return start + 2 * length - floor(room * length / current)
  end
  return start + length - floor((room - current) * length / previous)
end

local function empty_at()
  return current > 0 and start + 2 * length or previous > 0 and start + length or 0
end

local function write()
  local millis = empty_at() - tick
  if millis <= 0 then
    call('DEL', KEYS[1])
    return
  end
  call('SET', KEYS[1], format('%.0f:%.0f:%.0f:%.0f:%.0f', length, start, previous, current, tick), 'PX', format('%.0f', millis))
end

local function reply(outcome, wait, more, all, taken)
  return { outcome, counted(), wait, micros(empty_at()), more, all, taken, start }
end

if what == 'refund' or what == 'undo' then
  if what == 'refund' then
    local newest = math.min(cost, current)
    current, previous = current - newest, math.max(previous - cost + newest, 0)
  elseif stamp == start then
    current = math.max(current - cost, 0)
  elseif stamp == start - length then
    previous = math.max(previous - cost, 0)
  end
  if stored then
    write()
  end
  return reply(0, 0, 0, 0, 0)
end
if what == 'upto' and cost > 0 then
  cost = math.max(math.min(cost, max_calls - counted()), 1)
end
if cost > 0 and previous * (start + length - tick) <= (max_calls - current - cost) * length then
  if length ~= window then
    -- Another policy has written the record. Its tokens count as those of a window that has
    -- just ended: as many as before, and they return at the rate of this policy.
    length, start, previous, current = window, tick, counted(), 0
  end
  current = current + cost
  if what ~= 'look' then
    write()
  end
  return reply(0, 0, 0, 0, cost)
end
if moved then
  write()
end
if cost > 0 then
  local more = math.max(max_calls - counted(), 0) + 1
  return reply(3, micros(allows_at(cost)), micros(allows_at(more)), micros(allows_at(max_calls)), 0)
end
return reply(0, 0, 0, 0, 0)
