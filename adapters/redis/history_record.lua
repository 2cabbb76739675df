-- Every script of histories begins with this text. Metadata of a topic is a hash: e is the epoch, l
-- the lineage in which it began, o the last offset, pe and po the previous epoch and the offset at
-- which it ended, r when lifetimes are renewed, b the bytes of the stored packets if they are
-- limited.
local call, pcall, format = redis.call, redis.pcall, string.format

-- The lineage is the replication ID, which changes when a replica is promoted and when the server
-- restarts: whenever publications that were seen may have been lost.
local replication = call('INFO', 'replication')
local lineage = string.match(replication, 'master_replid:(%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x)')
if not lineage then
  return redis.error_reply('NOLINEAGE INFO replication has no master_replid')
end

local function unixMillis()
  local time = call('TIME')
  return time[1] .. string.sub('000000' .. time[2], -6, -4)
end
