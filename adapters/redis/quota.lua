-- This script executes one call of a quota. KEYS[1] is the record of its key. ARGV is the maximum
-- per period; when the previous, the current and the next period of the caller's clock begin, and
-- when the latter ends, in microseconds since 1970; what to do with the cost: "take", "look", "upto",
-- "refund" or "undo"; the cost; and for "undo" when the period began in which it was taken.
-- The reply is: 0 if allowed, 3 if denied; the tokens taken in the period; the microseconds until the
-- same call can be allowed, until no tokens count, until a denied key has more tokens, and until it has
-- all; the tokens that the call has taken; and when the period began.
--
-- A record is "<start>:<end>:<used>": the bounds of the period in microseconds since 1970, and the
-- tokens taken in it.
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local max_tokens, what, cost, stamp = tonumber(ARGV[1]), ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])

local start, finish
for i = 2, 4 do
  if tonumber(ARGV[i]) <= now and now < tonumber(ARGV[i + 1]) then
    start, finish = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  end
end
if not start then
  return redis.error_reply(format("CLOCK the time of this server is %.0f, and the caller's clock differs by more than a period; set both clocks", now))
end

local used, moved, ends = 0, false, finish
local stored = call('GET', KEYS[1])
local blocked = stored and block_reply(KEYS[1], stored, now)
if blocked then
  return blocked
elseif blocked == false then
  stored = false
end
if stored then
  local s, f, u = string.match(stored, '^(%-?%d+):(%-?%d+):(%d+)$')
  s, f, u = tonumber(s), tonumber(f), tonumber(u)
  if now < f then
    used = u
    -- If the clock went back to the period before that of the record, the latter counts until its
    -- end. If it went back further, what was taken counts in the period that it went to.
    moved = finish < s
    if not moved then
      start, ends = s, f
    end
  end
end

local outcome, retry, before, change = 0, 0, used, cost
if what == 'refund' or what == 'undo' then
  change = (what == 'refund' or stamp == start) and -math.min(cost, used) or 0
elseif what == 'upto' and cost > 0 then
  cost = math.max(math.min(cost, max_tokens - used), 1)
  change = cost
end
if change > 0 and used + change > max_tokens then
  outcome, retry, change = 3, ends - now, 0
elseif what == 'look' then
  change = 0
elseif change > 0 then
  ends = math.max(ends, finish) -- a policy with other periods may have written the record
end
used = used + change
if used ~= before or moved then
  if used > 0 then
    local millis = math.ceil((ends - now) / 1000)
    call('SET', KEYS[1], format('%.0f:%.0f:%.0f', start, ends, used), 'PX', format('%.0f', millis))
  else
    call('DEL', KEYS[1])
  end
end
local counted = outcome == 0 and what == 'look' and used + cost or used
return { outcome, counted, retry, counted > 0 and ends - now or 0, retry, retry, change, start }
