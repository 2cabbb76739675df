-- Writes a key, so that WAIT on the same connection waits for all that the server has written before. It is
-- sent as text, in one form for all servers.
--
-- KEYS: a key of the server. Returns the lineage.
call('DEL', KEYS[1]) -- when a script has removed something, it may write though memory is full
call('SET', KEYS[1], '', 'PX', 60000)
return lineage
