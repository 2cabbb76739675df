-- What limiters count, one row per key, and the functions that decide. All times are in
-- microseconds since 1970.
--
-- A decision holds an advisory lock of its key until its transaction ends. Only the holder writes
-- the row of the key; limit_sweep removes rows that have expired, which mean the same as no row.

-- A limit_lease is what a Take with a Lease has taken until the lease ends, or the mark of a receipt
-- without a lease. See docs/decisions/0092-undoing-deducts-lost-refill.md.
CREATE TYPE penstock.limit_lease AS (
  ends bigint,
  id bigint,                      -- 0 of a mark
  amount bigint,                  -- what returns at the end; -1 if the lease is settled, -2 of a mark
  taken bigint,                   -- when it was taken
  period bigint,                  -- of a quota: when the period began in which it was taken; of a bucket: the low, the least
                                  -- that it was missing since; of a settled lease of a bucket: when it was settled
  own_period bigint,              -- of a quota: the same period for the policy that took it
  maximum bigint                  -- of a quota: of that policy
);

CREATE TABLE penstock.limit_record (
  key bytea PRIMARY KEY,          -- the kind of the limiter, its policy and the parts of the key
  numbers bigint[],               -- what its kind counts, see the function of the kind; NULL if nothing counts
  times bigint[],                 -- of a log: when its tokens can be spent, in this order
  leases penstock.limit_lease[],  -- in the order of their ends; NULL if there are none
  block_ends bigint,              -- NULL if the key is not blocked
  block_began bigint,
  expires_at bigint NOT NULL      -- when nothing counts
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
-- HOT updates: no column that changes has an index

-- limit_permit has the permits of semaphores that are in use.
CREATE TABLE penstock.limit_permit (
  key bytea NOT NULL,
  holder bigint NOT NULL,
  ends bigint NOT NULL,
  PRIMARY KEY (key, holder)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE FUNCTION penstock.limit_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
$$;

-- limit_end_leases removes the leases that have ended, and returns them. If the clock went
-- backwards, moved is true, and no lease lasts longer than from now on.
CREATE FUNCTION penstock.limit_end_leases(INOUT leases penstock.limit_lease[], now bigint,
  OUT ended penstock.limit_lease[], OUT moved boolean) LANGUAGE plpgsql AS $$
DECLARE
  l penstock.limit_lease;
  n int := 0; -- have ended
BEGIN
  moved := false;
  FOREACH l IN ARRAY leases LOOP
    IF l.taken > now THEN
      moved := true;
    ELSIF l.ends <= now THEN
      n := n + 1;
    END IF;
  END LOOP;
  IF moved THEN
    SELECT array_agg(m ORDER BY m), count(*) FILTER (WHERE (m).ends <= now) INTO leases, n FROM (
      SELECT (u.ends - greatest(u.taken - now, 0), u.id, u.amount, least(u.taken, now), u.period, u.own_period, u.maximum)::penstock.limit_lease
      FROM unnest(leases) u) v(m);
  END IF;
  ended := leases[1 : n];
  leases := nullif(leases[n + 1 :], '{}');
END $$;

-- limit_add_lease returns the leases with one more.
CREATE FUNCTION penstock.limit_add_lease(leases penstock.limit_lease[], added penstock.limit_lease)
RETURNS penstock.limit_lease[] LANGUAGE plpgsql AS $$
BEGIN
  IF leases IS NULL OR (leases[cardinality(leases)]).ends <= added.ends THEN
    RETURN leases || added;
  END IF;
  RETURN (SELECT array_agg(l ORDER BY l) FROM unnest(leases || added) l);
END $$;

-- limit_find_lease returns the index of a lease, NULL if there is no such lease.
CREATE FUNCTION penstock.limit_find_lease(leases penstock.limit_lease[], wanted bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  l penstock.limit_lease;
  at int := 0;
BEGIN
  IF leases IS NOT NULL THEN
    FOREACH l IN ARRAY leases LOOP
      at := at + 1;
      IF l.id = wanted THEN
        RETURN at;
      END IF;
    END LOOP;
  END IF;
  RETURN NULL;
END $$;

-- limit_settle_lease marks a lease as settled, and forgets the one that was settled first if there are
-- more than most.
CREATE FUNCTION penstock.limit_settle_lease(leases penstock.limit_lease[], at int, now bigint, most bigint)
RETURNS penstock.limit_lease[] LANGUAGE plpgsql AS $$
BEGIN
  leases[at].amount := -1;
  leases[at].period := now;
  IF (SELECT count(*) FROM unnest(leases) u WHERE u.amount = -1) <= most THEN
    RETURN leases;
  END IF;
  RETURN (SELECT array_agg(ROW(k.ends, k.id, k.amount, k.taken, k.period, k.own_period, k.maximum)::penstock.limit_lease ORDER BY k.n)
    FROM unnest(leases) WITH ORDINALITY k(ends, id, amount, taken, period, own_period, maximum, n) WHERE k.n <> (
      SELECT f.n FROM unnest(leases) WITH ORDINALITY f(ends, id, amount, taken, period, own_period, maximum, n)
      WHERE f.amount = -1 ORDER BY f.period, f.n LIMIT 1));
END $$;

-- limit_open_leases returns how many leases are not settled, and when the first of them ends.
CREATE FUNCTION penstock.limit_open_leases(leases penstock.limit_lease[], OUT n bigint, OUT first_end bigint)
LANGUAGE sql IMMUTABLE AS $$
  SELECT count(*), min(u.ends) FROM unnest(leases) u WHERE u.amount >= 0
$$;

-- limit_read returns the record of a key, an empty one if there is none.
CREATE FUNCTION penstock.limit_read(wanted bytea) RETURNS penstock.limit_record LANGUAGE plpgsql AS $$
DECLARE
  s penstock.limit_record;
BEGIN
  SELECT * INTO s FROM penstock.limit_record r WHERE r.key = wanted;
  s.key := wanted;
  RETURN s;
END $$;

-- limit_write stores records of different keys. No other transaction inserts one of these keys
-- meanwhile. In REPEATABLE READ, one may have inserted or changed it before without being visible:
-- then this fails, and the application repeats its transaction.
CREATE FUNCTION penstock.limit_write(records penstock.limit_record[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO penstock.limit_record SELECT * FROM unnest(records)
  ON CONFLICT (key) DO UPDATE SET numbers = EXCLUDED.numbers, times = EXCLUDED.times, leases = EXCLUDED.leases,
    block_ends = EXCLUDED.block_ends, block_began = EXCLUDED.block_began, expires_at = EXCLUDED.expires_at;
END $$;

-- limit_begin prepares a transaction that consists of one statement. Its commit does not wait for
-- the disk: a crash of the server may forget the last decisions, those of three times
-- wal_writer_delay.
CREATE FUNCTION penstock.limit_begin(patience_ms int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'limits need the isolation level read committed' USING ERRCODE = 'PS001';
  ELSIF pg_is_in_recovery() THEN
    RAISE EXCEPTION 'this server is a standby; limits need the primary' USING ERRCODE = 'read_only_sql_transaction';
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true);
  IF patience_ms > 0 THEN
    PERFORM set_config('lock_timeout', patience_ms::text, true);
  END IF;
END $$;
