-- This script executes one call that takes from several buckets and records or from none. It follows
-- a table, kinds, of the scripts that execute one call of a kind, as functions of KEYS and ARGV. KEYS are
-- the buckets and records. ARGV is for each: its kind; 1 if it denies in any case; how many arguments
-- of its kind follow; and these.
-- After one has denied, no other starts a penalty. The reply is the numbers of each kind's reply, one
-- after the other: those before the call if one denies.
local position = { bucket = 4, counter = 3, log = 4, quota = 6 } -- of the argument that says what to take
local looks = { bucket = '0', counter = 'look', log = 'look', quota = 'look' }

local function denies(kind, reply, args)
  if kind ~= 'bucket' then
    local cost = tonumber(args[position[kind] + 1])
    return reply[1] == 4 or cost > 0 and reply[1] ~= 0 -- only a block denies a cost of 0
  end
  local held, units = reply[1], tonumber(args[4])
  local has_all_leases = reply[4] == 1
  return held < -2^52 or has_all_leases or units > 0 and units > held - tonumber(args[5])
end

local calls, denied, at = {}, false, 1
for i, key in ipairs(KEYS) do
  local kind, never, args = ARGV[at], ARGV[at + 1] == '1', {}
  for n = 1, tonumber(ARGV[at + 2]) do
    args[n] = ARGV[at + 2 + n]
  end
  at = at + 3 + #args
  local what = args[position[kind]]
  args[position[kind]] = looks[kind]
  local reply = kinds[kind]({ key }, args)
  if reply.err then
    return reply
  end
  args[position[kind]] = what
  if kind == 'log' and reply[1] == 1 and not denied then
    kinds.log({ key }, args) -- starts the penalty
  end
  denied = denied or never or denies(kind, reply, args)
  calls[i] = { kind, key, args, reply }
end

local replies = {}
for _, c in ipairs(calls) do
  local kind, key, args, reply = unpack(c)
  if not denied then
    reply = kinds[kind]({ key }, args)
  end
  for _, n in ipairs(reply) do
    replies[#replies + 1] = n
  end
end
return replies
