-- This script executes one call of a quota. KEYS[1] is the record of its key. ARGV is the maximum
-- per period; when the previous, the current and the next period of the caller's clock begin, and
-- when the latter ends, in microseconds since 1970; what to do with the cost: "take", "look", "upto",
-- "charge", "refund", "undo" or "settle"; the cost; for "undo" when the period began in which it was
-- taken, and for "take" and "look" how many microseconds the call may wait; and if it may wait, when the
-- period after the next one ends. For "take" and "look" with a lease, the latter is its identifier, and two
-- more are its microseconds and how many leases a record may have. For "settle", the cost is what to take
-- if the record does not have the lease, and is followed by what to take if it has, negative if that
-- returns, the identifier of the lease, 1 if tokens may return, and how many settled leases a record may have.
-- The reply is: 0 if allowed, 3 if denied; the tokens taken in the period, or the maximum while tokens
-- of the next one are reserved; the microseconds until the cost can be spent, or the same call can be
-- allowed, until no tokens count, until a denied key has more tokens, and until it has all; the tokens
-- that the call has taken; and when the period began to which they belong.
--
-- A record is "<start>:<end>:<used>" or "<start>:<end>:<used>:<reserved>:<reserved end>": the bounds of
-- the period in microseconds since 1970, and the tokens taken in it; the tokens reserved in the next
-- period, which begins when this one ends, and when it ends. Counts are at most 2^52. Leases follow, with
-- the tokens that return; the beginning of the record's period, and the beginning of the caller's and the
-- maximum, which identify the policy: the end of another policy's lease returns nothing.
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local max_tokens, what, cost, stamp = tonumber(ARGV[1]), ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
local takes = what == 'take' or what == 'look'
local max_wait = takes and stamp or 0
local max_count = 2 ^ 52

local start, finish
for i = 2, 4 do
  if tonumber(ARGV[i]) <= now and now < tonumber(ARGV[i + 1]) then
    start, finish = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  end
end
if not start then
  return redis.error_reply(format("CLOCK the time of this server is %.0f, and the caller's clock differs by more than a period; set both clocks", now))
end

local length, own_start, ends = finish - start, start, finish
local used, reserved, reserved_ends, moved, leases, leases_moved = 0, 0, 0, false, nil, false
local lease = ARGV[10] and lease_functions()
local stored = call('GET', KEYS[1])
local blocked = stored and block_reply(KEYS[1], stored, now, what == 'look')
if blocked then
  return blocked
elseif blocked == false then
  stored = false
end
if stored then
  local r, e, l = 0, 0, ''
  local s, f, u = string.match(stored, '^(%-?%d+):(%-?%d+):(%d+)$')
  if not s then
    s, f, u, r, e, l = string.match(stored, '^(%-?%d+):(%-?%d+):(%d+):?(%d*):?(%-?%d*)(.*)$')
  end
  s, f, u, r, e = tonumber(s), tonumber(f), tonumber(u), tonumber(r) or 0, tonumber(e) or 0
  if l ~= '' then
    lease = lease or lease_functions()
    leases, leases_moved = lease.end_all(l, now, function(ended)
      local period, own_period, maximum = string.match(ended.addition, ',(%-?%d+),(%-?%d+),(%d+)')
      local is_own = tonumber(maximum) == max_tokens and
        (own_period == ARGV[2] or own_period == ARGV[3] or own_period == ARGV[4])
      if is_own and tonumber(period) == s then
        u = u - math.min(ended.amount, u)
      end
    end)
  end
  if r > 0 and f <= now then -- the next period has begun
    s, f, u, r, e = f, e, r, 0, 0
  end
  if now < f then
    -- If the clock went back to the period before that of the record, the latter counts until its
    -- end. If it went back further, what was taken counts in the period that it went to.
    moved = finish < s
    if moved then
      used = math.min(u + r, max_count)
    else
      start, ends, used, reserved, reserved_ends = s, f, u, r, e
    end
  end
end
local used_before, reserved_before, leases_before = used, reserved, leases

local all_leases = takes and ARGV[11] and lease.has_all(leases, ARGV[11])
local outcome, retry, taken = 0, 0, 0
if what == 'settle' then
  local entries = lease.parse(leases)
  local settled = lease.find(entries, ARGV[9])
  if settled and settled.state == '-' then
    cost = 0 -- nothing again
  elseif settled then
    cost = stamp
    lease.settle(entries, settled, now, ARGV[11])
    leases = lease.format(entries, tonumber(string.sub(leases, 2, 17)), 2^53)
  end
  if cost >= 0 then
    what = 'charge'
  elseif ARGV[10] == '1' and tonumber(string.match(settled.addition, '%-?%d+')) == start then
    used = used - math.min(-cost, used)
  end
end
if what == 'refund' or what == 'undo' then
  local newest = (what == 'refund' or stamp == ends) and math.min(cost, reserved) or 0
  reserved, cost = reserved - newest, cost - newest
  if what == 'refund' or stamp == start then
    used = used - math.min(cost, used)
  end
elseif what == 'charge' then
  used = math.min(used + cost, max_count)
  if reserved == 0 then
    ends = math.max(ends, finish) -- a policy with other periods may have written the record
  end
elseif cost > 0 then
  if what == 'upto' then
    cost = math.max(reserved > 0 and 1 or math.min(cost, max_tokens - used), 1)
  end
  local wait = ends - now
  stamp = start
  if reserved == 0 and used + cost <= max_tokens and all_leases then
    outcome = 3
  elseif reserved == 0 and used + cost <= max_tokens then
    taken, used, ends = cost, used + cost, math.max(ends, finish)
    if takes and ARGV[11] then
      leases = lease.add(leases, now, ARGV[10], ARGV[9], cost, 0, 0, format(',%.0f,%.0f,%.0f', start, own_start, max_tokens))
    end
  elseif reserved + cost > max_tokens then -- not in the next period, and no call reserves in a later one
    outcome, retry = 3, math.max(wait, reserved_ends - max_wait - now)
  elseif wait > max_wait then
    outcome, retry = 3, wait - max_wait
  else
    taken, retry, stamp, reserved = cost, wait, ends, reserved + cost
    -- The end of the caller's period that contains the beginning of the next one; of a later one if
    -- a policy with longer periods has written the record.
    local until_ = ends + length
    for _, i in ipairs({ 9, 5, 4, 3 }) do
      until_ = tonumber(ARGV[i]) > ends and tonumber(ARGV[i]) or until_
    end
    reserved_ends = math.max(reserved_ends, until_)
  end
end

moved = moved or leases_moved or leases ~= leases_before
if what ~= 'look' and (used ~= used_before or reserved ~= reserved_before or moved) then
  if used > 0 or reserved > 0 or leases then
    local record, expires = format('%.0f:%.0f:%.0f', start, ends, used), ends
    if reserved > 0 then
      record, expires = record .. format(':%.0f:%.0f', reserved, reserved_ends), reserved_ends
    end
    if leases then
      record, expires = record .. leases, math.max(expires, string.sub(leases, 19, 34))
    end
    local millis = math.ceil((expires - now) / 1000)
    call('SET', KEYS[1], record, 'PX', format('%.0f', millis))
  else
    call('DEL', KEYS[1])
  end
end
local empty_at = reserved > 0 and reserved_ends or used > 0 and ends or now
local more, all = 0, 0
if outcome == 3 then
  more = (reserved < max_tokens and ends or reserved_ends) - now
  all = (reserved > 0 and reserved_ends or ends) - now
end
local first_end = outcome == 3 and leases_before and lease.first_end(leases_before, now) or 0
if first_end > 0 then
  more = math.min(more, first_end)
  if all_leases then
    retry, more = math.max(retry, first_end), 0 -- denies calls without a lease for no time
  end
end
return { outcome, reserved > 0 and max_tokens or used, retry, empty_at - now, more, all, taken, stamp }
