-- This file precedes the scripts about values with leases: buckets and records of quotas. The leases of
-- a value are when the last one was taken and when the last one ends, and each lease in the order of
-- their ends: its end, its identifier, the amount that returns then, "-" if it is settled, when it was
-- taken, and what the kind of value adds. Times are in microseconds since 1970 and have 16 digits.
--
--   ;1730000000000000,1730000060000000;1730000060000000#42,500000,1730000000000000

-- end_leases returns the leases that have not ended, nil if there are none, and whether the clock went
-- backwards: then, no lease lasts longer than from now on. It calls ended with the amount, the length
-- and the addition of each lease that has ended and is not settled.
local function end_leases(leases, now, ended)
  local match, sub = string.match, string.sub
  local moved = sub(leases, 2, 17) - now > 0
  if moved then
    local entries, last, format = {}, 0, string.format
    for ends, what, taken, addition in string.gmatch(leases, '(%d+)(#%d+,[%d-]+),(%d+)([^;]*)') do
      ends = ends - math.max(taken - now, 0)
      last = math.max(last, ends)
      entries[#entries + 1] = format('%016.0f%s,%.0f%s', ends, what, math.min(taken, now), addition)
    end
    table.sort(entries)
    leases = format(';%016.0f,%016.0f;', now, last) .. table.concat(entries, ';')
  end
  local at = 36 -- the beginning of the first lease
  while at < #leases do
    local ends = tonumber(sub(leases, at, at + 15))
    if ends > now then
      break
    end
    local amount, taken, addition, next = match(leases, '^#%d+,([%d-]+),(%d+)([^;]*);?()', at + 16)
    if amount ~= '-' then
      ended(tonumber(amount), ends - taken, addition)
    end
    at = next
  end
  if at > #leases then
    return nil, moved
  end
  return at > 36 and sub(leases, 1, 35) .. sub(leases, at) or leases, moved
end

