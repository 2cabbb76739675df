-- This file precedes the scripts that take and settle leases.

-- has_leases reports whether there are as many leases as there may be.
local function has_leases(leases, most)
  return leases and select(2, string.gsub(leases, '#', '')) >= tonumber(most)
end

-- add_lease returns the leases with one more.
local function add_lease(leases, now, micros, id, amount, addition)
  leases = leases or ''
  local sub, ends = string.sub, now + micros
  local last, at = tonumber(sub(leases, 19, 34)) or 0, #leases + 1
  if ends < last then
    for position, other in string.gmatch(leases, '();(%d+)#') do
      if other - ends > 0 then
        at = position
        break
      end
    end
  end
  return string.format(';%016.0f,%016.0f%s;%016.0f#%s,%.0f,%.0f%s%s', now, math.max(ends, last),
    sub(leases, 35, at - 1), ends, id, amount, now, addition, sub(leases, at))
end

-- settle_lease returns the leases with one of them settled; of that one the amount, nil if it was settled
-- already, when it was taken, and its addition. It returns nil if there is no such lease.
local function settle_lease(leases, id)
  local _, at = string.find(leases or '', '#' .. id .. ',', 1, true)
  if not at then
    return nil
  end
  local amount, next, taken, addition = string.match(leases, '^([%d-]+)(),(%d+)([^;]*)', at + 1)
  return string.sub(leases, 1, at) .. '-' .. string.sub(leases, next), tonumber(amount), taken, addition
end

