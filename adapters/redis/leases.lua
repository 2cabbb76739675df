-- This file precedes the scripts about values with leases: buckets and records of quotas. The leases of
-- a value are a head of three numbers, and each lease in the order of their ends. The head is when the
-- last one was taken, when the last one ends, and the low: the least that
-- the bucket was missing before a change since all lows were lowered. A lease is its end; its
-- identifier; the amount that returns then, "-" if it is settled, "*" for the mark of a receipt without
-- a lease; when it was taken; its low, or of a settled one when it was settled; and what the kind of
-- value adds. Times are in microseconds since 1970; they and the low of the head have 16 digits.
--
--   ;1730000000000000,1730000060000000,0000000006000000;1730000060000000#42,500000,1730000000000000,6500000
--
-- The low of a lease is the least that the bucket was missing since it was taken. It bounds what
-- returns; see docs/decisions/0092-undoing-deducts-lost-refill.md.

local no_low = 2^53

-- parse_leases returns the leases in the order of their ends.
local function parse_leases(leases)
  local entries = {}
  for ends, id, amount, taken, low, addition in string.gmatch(leases or '', '(%d+)#(%d+),([%d*-]+),(%d+),(%d+)([^;]*)') do
    entries[#entries + 1] = {
      ends = tonumber(ends), id = id, amount = tonumber(amount), state = amount,
      taken = tonumber(taken), low = tonumber(low), addition = addition,
    }
  end
  return entries
end

-- head_low returns the low of the head.
local function head_low(leases) return leases and tonumber(string.sub(leases, 36, 51)) or no_low end

-- lower_head returns the leases with a low of the head that is at most low.
local function lower_head(leases, low)
  if head_low(leases) <= low then
    return leases
  end
  return string.sub(leases, 1, 35) .. string.format('%016.0f', low) .. string.sub(leases, 52)
end

-- format_leases returns the text of leases, nil if there are none.
local function format_leases(entries, last_taken, low)
  local format, texts, last_end = string.format, {}, 0
  for i, e in ipairs(entries) do
    last_end = math.max(last_end, e.ends)
    local amount = e.amount and format('%.0f', e.amount) or e.state
    texts[i] = format('%016.0f#%s,%s,%.0f,%.0f%s', e.ends, e.id, amount, e.taken, e.low, e.addition)
  end
  if #texts == 0 then
    return nil
  end
  return format(';%016.0f,%016.0f,%016.0f;', last_taken, last_end, low) .. table.concat(texts, ';')
end

-- lower_leases lowers the lows of all leases.
local function lower_leases(entries, low)
  for _, e in ipairs(entries) do
    if e.state ~= '-' then
      e.low = math.min(e.low, low)
    end
  end
end

-- give_back returns how many of some units return of a lease with a low, and lowers all leases as if it had
-- taken as many less. All leases have been lowered. Without a low, only the time is known at which the units were taken.
local function give_back(entries, units, low)
  units = math.min(units, low or units)
  for _, e in ipairs(entries) do
    if e.state ~= '-' then
      e.low = math.max((not low or e.low >= low) and e.low - units or math.min(e.low, low - units), 0)
    end
  end
  return units
end

-- end_leases returns the leases that have not ended, nil if there are none, and whether the clock went
-- backwards: then, no lease lasts longer than from now on. It calls ended with each lease that has ended
-- and is not settled, and with all leases.
local function end_leases(leases, now, ended)
  local sub = string.sub
  local moved = sub(leases, 2, 17) - now > 0
  if not moved and sub(leases, 53, 68) - now > 0 then
    return leases, false
  end
  local entries, left = parse_leases(leases), {}
  if moved then
    for _, e in ipairs(entries) do
      e.ends = e.ends - math.max(e.taken - now, 0)
      e.taken = math.min(e.taken, now)
    end
    table.sort(entries, function(a, b) return a.ends < b.ends end)
  end
  for _, e in ipairs(entries) do
    if e.ends > now then
      left[#left + 1] = e
    elseif e.amount then
      ended(e, entries)
    end
  end
  return format_leases(left, math.min(now, tonumber(sub(leases, 2, 17))), head_low(leases)), moved
end

-- first_end returns the microseconds until the first lease ends that may return something, 0 if there is none.
local function first_end(leases, now)
  local ends = leases and string.match(leases, '(%d+)#%d+,%d')
  return ends and ends - now or 0
end

