-- This script executes one call of a sliding-window log, or of a cooldown: a log with penalties.
-- KEYS[1] is the record of its key. ARGV is the maximum per window; the window and the penalty (0
-- for a log) in microseconds; what to do with the cost: "take", "look", "upto", "charge", "refund"
-- or "undo"; the cost; and for "undo" the time of the calls, and for "take" and "look" how many
-- microseconds the call may wait.
-- The reply is: 0 if allowed, 1 if a penalty starts, 2 if a penalty is in effect, 3 if a log
-- denies; the calls that count; the microseconds until the cost can be spent, or the same call can
-- be allowed, until nothing of the record counts, until a denied key has more tokens than now, and
-- until it has all; the calls that were taken; and their time.
--
-- A record is a string of numbers of 7 bytes, big-endian; times are microseconds since 1970:
--   when the record was written; the end of the penalty, or 0;
--   the largest maximum and the largest window of all policies that have written the record;
--   the times of the calls, oldest first: at least the newest ones, twice as many as the largest
--   maximum, of the last largest window. Those of reservations are in the future.
-- So a process with any of these policies finds the calls that it must count: the newest of its
-- window, at most twice as many as its maximum. A call costs a binary search; bytes of calls are
-- copied, but only numbers that are needed are decoded.
local call, floor, ceil, byte, char, sub, format = redis.call, math.floor, math.ceil, string.byte, string.char, string.sub, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local max_calls, window, penalty = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local what, cost, stamp_of_undo = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local max_wait = (what == 'take' or what == 'look') and stamp_of_undo or 0
local number_size, header_size = 7, 28
-- A record of at most this many calls is written whole, with one command. To a longer one, calls
-- are appended, so that a replica receives only these.
local short = 64

local value = call('GET', KEYS[1]) or ''
local blocked = block_reply(KEYS[1], value, now, what == 'look')
if blocked then
  return blocked
end
if value ~= '' and (#value < header_size or byte(value, 1, 1) > 15) then
  value = '' -- not a record: those begin with a time below 2^52
end

local function decode(at)
  local a, b, c, d, e, f, g = byte(value, at, at + 6)
  return (((((a * 256 + b) * 256 + c) * 256 + d) * 256 + e) * 256 + f) * 256 + g
end

local function encode(n)
  local high, low = floor(n / 16777216), n % 16777216
  return char(floor(high / 16777216), floor(high / 65536) % 256, floor(high / 256) % 256, high % 256,
    floor(low / 65536), floor(low / 256) % 256, low % 256)
end

local written, until_, keep, retain, stored = now, 0, max_calls, window, 0
if value ~= '' then
  written, until_ = decode(1), decode(1 + number_size)
  keep, retain = math.max(keep, decode(1 + 2 * number_size)), math.max(retain, decode(1 + 3 * number_size))
  stored = (#value - header_size) / number_size
end

local function stamp(i)
  return decode(header_size + (i - 1) * number_size + 1)
end

-- stamps returns the encoded times from one call to another.
local function stamps(first, last)
  return sub(value, header_size + (first - 1) * number_size + 1, header_size + last * number_size)
end

-- If the clock went backwards, the whole record moves with it: the time since it was written does
-- not count, and nothing lasts for the length of the step.
local moved = now < written
if moved then
  local step, parts = written - now, {}
  for i = 1, stored do
    parts[i] = encode(math.max(stamp(i) - step, 0))
  end
  until_ = math.max(until_ - step, 0)
  value = sub(value, 1, header_size) .. table.concat(parts)
end

-- older returns how many calls were at a time or before.
local function older(at)
  local low, high = 0, stored
  while low < high do
    local middle = ceil((low + high) / 2)
    if stamp(middle) <= at then
      low = middle
    else
      high = middle - 1
    end
  end
  return low
end

local outside = math.max(older(now - window), stored - 2 * max_calls)
local count = stored - outside

-- leaves_at returns when that many of the calls that count, the oldest ones, no longer do.
local function leaves_at(calls)
  return calls > 0 and stamp(outside + calls) + window or 0
end

-- allows_at returns when that many calls can be allowed.
local function allows_at(calls)
  return math.max(until_, leaves_at(count + calls - max_calls))
end

local function newest()
  return stored > 0 and stamp(stored) or 0
end

-- replace writes calls instead of those from one to another.
local function replace(first, last, calls)
  value = sub(value, 1, header_size) .. stamps(1, first - 1) .. calls .. stamps(last + 1, stored)
  stored = (#value - header_size) / number_size
end

-- write stores the record with that many calls at a time in addition, with one command if it must
-- be whole.
local function write(calls, at, whole)
  local added = string.rep(encode(at), calls)
  if calls > 0 and at < newest() then -- those of reservations are later
    local position = older(at)
    replace(position + 1, position, added)
    calls, added, whole = 0, '', true
  end
  local last = calls > 0 and at or newest()
  local millis = ceil((math.max(until_, last > 0 and last + retain or 0) - now) / 1000)
  if millis <= 0 then
    call('DEL', KEYS[1])
    return
  end
  local header = encode(now) .. encode(until_) .. encode(keep) .. encode(retain)
  local excess = stored + calls - 2 * keep
  local unneeded = math.min(math.max(older(now - retain), excess), stored)
  if whole or moved or stored <= short or excess > 0 or unneeded > stored / 5 then
    call('SET', KEYS[1], header .. stamps(unneeded + 1, stored) .. added, 'PX', format('%.0f', millis))
    return
  end
  call('SETRANGE', KEYS[1], 0, header)
  call('APPEND', KEYS[1], added)
  call('PEXPIRE', KEYS[1], format('%.0f', millis))
end

local function reply(outcome, calls, allowed_at, last, more_at, all_at, taken, at)
  return { outcome, calls, math.max(allowed_at - now, 0), math.max(until_ - now, last + window - now, 0),
    math.max(more_at - now, 0), math.max(all_at - now, 0), taken, at }
end

if what == 'refund' or what == 'undo' then
  local first, last = outside, stored -- removes the calls after first up to last
  if what == 'undo' then
    first, last = math.max(first, older(stamp_of_undo - 1)), older(stamp_of_undo)
  end
  first = math.max(first, last - cost)
  if first < last then
    replace(first + 1, last, '')
  end
  if first < last or moved then
    write(0, now, true)
  end
  return reply(0, stored - outside, 0, newest(), 0, 0, 0, now)
elseif what == 'charge' then
  write(math.min(cost, 2 * max_calls), now)
  return reply(0, 0, 0, 0, 0, 0, 0, now)
end
local in_penalty = until_ > now
if what == 'upto' and cost > 0 then
  cost = math.max(math.min(cost, max_calls - count), 1)
end
if cost > 0 and not in_penalty then
  -- A log with reservations has at most twice as many calls as the maximum.
  local at = allows_at(cost)
  local reached_at = math.max(at - max_wait, leaves_at(count + cost - 2 * max_calls))
  if reached_at <= now then
    at = math.max(at, now)
    local last = math.max(newest(), at)
    if what ~= 'look' then
      write(cost, at)
    end
    return reply(0, count + cost, at, last, 0, 0, cost, at)
  elseif penalty == 0 then
    if what ~= 'look' and moved then
      write(0, now)
    end
    return reply(3, count, reached_at, newest(), allows_at(math.max(max_calls - count, 0) + 1), allows_at(max_calls), 0, now)
  end
end
local outcome, more_at = 0, until_
if in_penalty then
  outcome = 2
elseif cost > 0 then
  outcome, until_ = 1, now + penalty
  until_ = allows_at(cost)
  more_at = until_
end
if what ~= 'look' and (outcome == 1 or moved) then
  write(0, now)
end
-- The calls of the window may be more than count, if they were counted by a policy with a larger maximum.
return reply(outcome, stored - older(now - window), allows_at(cost), newest(), more_at, allows_at(max_calls), 0, now)
