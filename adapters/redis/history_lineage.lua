-- Every script of histories begins with this text.
local call, pcall, format = redis.call, redis.pcall, string.format

-- The lineage is the replication ID, which changes when a replica is promoted and when the server
-- restarts: whenever publications that were seen may have been lost.
local replication = call('INFO', 'replication')
local lineage = string.match(replication, 'master_replid:(%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x)')
if not lineage then
  return redis.error_reply('NOLINEAGE INFO replication has no master_replid')
end
