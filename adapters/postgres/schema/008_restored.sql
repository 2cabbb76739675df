-- restored begins a new epoch of every topic, after the data of the server was restored from a copy.
-- Run it before nodes connect: nothing in the server shows that its data is older than what clients
-- have received, and positions would be used twice.
CREATE FUNCTION penstock.restored() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock('penstock.topic'::regclass::oid::bigint);
  INSERT INTO penstock.lineage (no, epoch, identity)
    SELECT no + 1, gen_random_uuid()::text, identity FROM penstock.lineage ORDER BY no DESC LIMIT 1;
END $$;
