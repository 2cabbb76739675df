-- This script executes one call of a quota. KEYS[1] is the record of its key. ARGV is the maximum
-- per period; when the previous, the current and the next period of the caller's clock begin, and
-- when the latter ends, in microseconds since 1970; and the cost, 0 to only read the record, or
-- minus the tokens to refund.
-- The reply is: 0 if allowed, 3 if denied; the tokens taken in the period; the microseconds until the
-- same call can be allowed, until no tokens count, and until a denied key has more tokens.
--
-- A record is "<start>:<end>:<used>": the bounds of the period in microseconds since 1970, and the
-- tokens taken in it.
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local max_tokens, cost = tonumber(ARGV[1]), tonumber(ARGV[6])

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

local outcome, retry, before = 0, 0, used
if cost > 0 and used + cost > max_tokens then
  outcome, retry = 3, ends - now
else
  used = math.max(used + cost, 0)
  if cost > 0 then
    ends = math.max(ends, finish) -- a policy with other periods may have written the record
  end
end
if used ~= before or moved then
  if used > 0 then
    local millis = math.ceil((ends - now) / 1000)
    call('SET', KEYS[1], format('%.0f:%.0f:%.0f', start, ends, used), 'PX', format('%.0f', millis))
  else
    call('DEL', KEYS[1])
  end
end
return { outcome, used, retry, used > 0 and ends - now or 0, retry }
