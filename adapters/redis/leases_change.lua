-- This file precedes the scripts that take, undo and settle leases.

-- has_leases reports whether there are as many leases that are not settled as there may be.
local function has_leases(leases, most)
  return leases and select(2, string.gsub(leases, '#%d+,%d', '')) >= tonumber(most)
end

-- insert_lease inserts a lease in the order of the ends.
local function insert_lease(entries, e)
  local at = #entries + 1
  while at > 1 and entries[at - 1].ends > e.ends do
    at = at - 1
  end
  table.insert(entries, at, e)
end

-- add_lease returns the leases with one more. The bucket is missing some units before, and more afterwards.
local function add_lease(leases, now, micros, id, amount, before, after, addition)
  local entries = parse_leases(leases)
  lower_leases(entries, math.min(head_low(leases), before))
  insert_lease(entries, { ends = now + micros, id = id, amount = amount, taken = now, low = after, addition = addition })
  return format_leases(entries, now, no_low)
end

-- add_mark returns the leases with the mark of a receipt, if there is room: otherwise the last mark stands
-- for it, whose low is less. Receipts with one low need one mark, that of the first.
local function add_mark(leases, now, micros, most, before, after)
  local entries, kept, by_low, marks = parse_leases(leases), {}, {}, 0
  lower_leases(entries, math.min(head_low(leases), before))
  for _, e in ipairs(entries) do
    local first = e.state == '*' and by_low[e.low]
    if first then
      first.taken = math.min(first.taken, e.taken)
    else
      kept[#kept + 1] = e
      if e.state == '*' then
        by_low[e.low], marks = e, marks + 1
      end
    end
  end
  if marks < tonumber(most) then
    insert_lease(kept, { ends = now + micros, id = '0', state = '*', taken = now, low = after, addition = '' })
  end
  return format_leases(kept, now, no_low)
end

-- find_mark returns the mark of a receipt, nil if there is none: the last one until then, whose low is at
-- most that of the receipt.
local function find_mark(entries, stamp)
  local found
  for _, e in ipairs(entries) do
    local is_later = not found or e.taken > found.taken or e.taken == found.taken and e.low > found.low
    if e.state == '*' and e.taken <= stamp and is_later then
      found = e
    end
  end
  return found
end

-- find_lease returns the lease with an identifier, nil if there is none.
local function find_lease(entries, id)
  for _, e in ipairs(entries) do
    if e.id == id and id ~= '0' then
      return e
    end
  end
end

-- settle_lease marks a lease as settled, and forgets the one that was settled first if there are too many.
local function settle_lease(entries, e, now, most)
  e.amount, e.state, e.low = nil, '-', now
  local settled, first = 0, nil
  for i, other in ipairs(entries) do
    if other.state == '-' then
      settled = settled + 1
      first = (not first or other.low < entries[first].low) and i or first
    end
  end
  if settled > tonumber(most) then
    table.remove(entries, first)
  end
end

