-- This file is in every script about buckets, after limiter_time.lua. A bucket is stored as the
-- time at which it will be full, in microseconds and 16 digits, and the numbers of the policy that
-- stored it, which the scripts call its suffix: the units that return in a microsecond, the units of
-- a token, and the capacity in tokens.
--
--   1730000000000000/1.100000.10
--
-- In between are the units by which the bucket is full earlier than the end of that
-- microsecond, if any, and the units by which more than a full bucket is missing, if any:
--
--   1730000000000000:12:5000/13.3600000.10
--
-- The leases of a bucket are in between too, with the units that return; then, the units by which it
-- is full earlier are there even if they are 0.
--
-- A blocked bucket is stored as the times at which the block ends and was set:
-- "!1730000001000000:1730000000000000". All numbers are below 2^53, so doubles represent them
-- exactly.
--
-- Replies about a blocked bucket are this number minus the microseconds until the block ends.
local blocked = -2^52

-- ends applies the leases that have ended to a bucket that lacks units now, or has been full for as many.
-- Each ends as an undo at its end. It returns what the bucket lacks then, and what end_leases does.
local function ends(leases, missing, per_micro, possible)
  local low = head_low(leases)
  local left, moved = end_leases(leases, now, function(lease, entries)
    local then_missing = missing + (now - lease.ends) * per_micro
    if then_missing > possible then -- the clock went backwards
      missing = missing - (then_missing - possible)
      then_missing = possible
    end
    low = math.min(low, math.max(then_missing, 0))
    lower_leases(entries, low)
    missing = missing - give_back(entries, lease.amount, lease.low)
  end)
  return missing, left, moved
end

-- read_other reads a value that another policy has stored, or a block; see read. Its functions
-- are inside because every execution of a script creates those that are outside.
local function read_other(key, value, per_micro, suffix)
  local ceil, floor, format, match = math.ceil, math.floor, string.format, string.match

  -- read_block returns the reply about a blocked bucket, or nil after the block. A clock that
  -- went backwards must not extend the block, so read_block moves it to the present.
  local function read_block()
    local ends, began = match(value, '^!(%d+):(%d+)$')
    local left = ends - now
    if now < tonumber(began) then
      left = ends - began
      call('SET', key, format('!%.0f:%.0f', now + left, now), 'PX', format('%.0f', ceil(left / 1000)))
    end
    return left > 0 and blocked - left or nil
  end

  -- multiply_divide returns a * b / c rounded up, for a < c. It multiplies bit by bit if the
  -- product is too large for a double.
  local function multiply_divide(a, b, c)
    if a * b < 2^53 then
      return ceil(a * b / c)
    end
    local quotient, rest, bit = 0, 0, 2^51
    while bit >= 1 do
      quotient, rest = quotient * 2, rest * 2
      if b >= bit then
        b, rest = b - bit, rest + a
      end
      quotient, rest, bit = quotient + floor(rest / c), rest % c, bit / 2
    end
    return rest > 0 and quotient + 1 or quotient
  end

  -- convert returns units of the other policy as those of the caller's, rounded up: a change
  -- of the policy never creates tokens. No bucket lacks more than 2^52 units.
  local function convert(missing, old_per_token, per_token)
    local tokens = floor(missing / old_per_token)
    local rest = multiply_divide(missing % old_per_token, per_token, old_per_token)
    return math.min(tokens * per_token + rest, 2^52)
  end

  -- refills_faster compares the policies by the microseconds per token.
  local function refills_faster(per_token, old_per_micro, old_per_token)
    local micros, old_micros = floor(per_token / per_micro), floor(old_per_token / old_per_micro)
    if micros ~= old_micros then
      return micros < old_micros
    end
    return per_token % per_micro * old_per_micro < old_per_token % old_per_micro * per_micro
  end

  if string.byte(value) == 33 then
    return 0, false, read_block()
  end
  local full_at, early, ahead, leases, old_numbers = match(value, '^(%d+):?(%d*):?(%d*)([^/]*)(/.*)$')
  local old_per_micro, old_per_token, old_capacity = match(old_numbers, '/(%d+)%.(%d+)%.(%d+)')
  old_per_micro, old_per_token = tonumber(old_per_micro), tonumber(old_per_token)
  local missing = (full_at - now) * old_per_micro - (tonumber(early) or 0)
  local possible = old_capacity * old_per_token + (tonumber(ahead) or 0)
  local moved
  if leases ~= '' then
    missing, leases, moved = ends(leases, missing, old_per_micro, possible)
    if leases then -- the numbers of one policy mean nothing to another
      leases = string.gsub(leases, '(#%d+,)%d+,(%d+),%d+', '%10,%2,0')
      leases = string.gsub(leases, '(#%d+,%*,%d+),%d+', '%1,0')
    end
  else
    leases = nil
  end
  if missing <= 0 then
    return 0, moved, nil, leases
  end
  local per_token = tonumber(match(suffix, '/%d+%.(%d+)'))
  local outdated = moved or refills_faster(per_token, old_per_micro, old_per_token)
  if missing > possible then -- the clock went backwards
    missing, outdated = possible, true
  end
  return convert(missing, old_per_token, per_token), outdated, nil, leases
end

-- read returns four values about the value of a bucket:
--
--   - the units that the bucket lacks, in units of the caller's policy;
--   - whether a denied call must write them too: because the clock went backwards, or because
--     the caller's policy refills faster than the one that stored the value, and the caller
--     returns a RetryAfter that holds only with its own;
--   - the reply if the bucket is blocked;
--   - its leases, if it has any.
local function read(key, value, per_micro, full, suffix)
  local sub, missing, possible, leases, moved = string.sub, nil, nil, nil, false
  if sub(value, 17) == suffix then -- the usual case
    missing, possible = (sub(value, 1, 16) - now) * per_micro, full
  elseif sub(value, -#suffix) == suffix then
    local full_at, early, ahead = string.match(value, '^(%d+):(%d+):?(%d*)/')
    if not full_at then
      full_at, early, ahead, leases = string.match(value, '^(%d+):(%d+):?(%d*)(;[^/]*)')
    end
    missing = (full_at - now) * per_micro - early
    possible = full + (tonumber(ahead) or 0)
    if leases then
      missing, leases, moved = ends(leases, missing, per_micro, possible)
      if leases then -- what is missing now is a low, whatever the call changes
        leases = lower_head(leases, math.max(math.min(missing, possible), 0))
      end
    end
  else
    return read_other(key, value, per_micro, suffix)
  end
  if missing > possible then -- the clock went backwards
    return possible, true, nil, leases
  elseif missing <= 0 then
    return 0, moved, nil, leases
  end
  return missing, moved, nil, leases
end

-- write stores a bucket that lacks units and has leases, which may be nil.
local function write(key, missing, per_micro, full, suffix, leases)
  if missing <= 0 and not leases then
    call('DEL', key)
    return
  end
  missing = math.max(missing, 0)
  local ceil, format = math.ceil, string.format
  local micros = ceil(missing / per_micro)
  local early = micros * per_micro - missing
  local text = format('%016.0f', now + micros)
  if missing > full then
    text = text .. format(':%.0f:%.0f', early, missing - full)
  elseif early > 0 or leases then
    text = text .. format(':%.0f', early)
  end
  if leases then
    text = text .. leases
    micros = math.max(micros, string.sub(leases, 19, 34) - now) -- settling and undoing need them until their ends
  end
  call('SET', key, text .. suffix, 'PX', format('%.0f', ceil(micros / 1000)))
end

