-- limit_step executes one call. The first two arguments are the kind (1 bucket, 2 counter, 3 log, 4
-- quota, 5 semaphore) and the operation: 0 take, 1 look, 2 take up to, 3 charge, 4 refund, 5 undo,
-- 6 settle, 7 block for (6) microseconds, 8 reset, 9 renew, 10 release. It changes the record, if
-- changed, but does not write it.
CREATE FUNCTION penstock.limit_step(INOUT s penstock.limit_record, a bigint[], now bigint,
  OUT n bigint[], OUT changed boolean) LANGUAGE plpgsql AS $$
DECLARE
  r record;
  moved boolean := false; -- the clock went backwards during a block
  left_over bigint;
BEGIN
  changed := false;
  IF a[2] >= 7 AND a[2] <= 8 THEN
    s.numbers := NULL;
    s.times := NULL;
    s.leases := NULL;
    s.block_ends := CASE WHEN a[2] = 7 THEN now + a[6] END;
    s.block_began := CASE WHEN a[2] = 7 THEN now END;
    s.expires_at := coalesce(s.block_ends, now);
    n := ARRAY[0, 0, 0, 0, 0, 0, 0, 0];
    changed := true;
    RETURN;
  END IF;
  IF s.block_ends IS NOT NULL THEN
    moved := now < s.block_began;
    left_over := s.block_ends - greatest(now, s.block_began);
    IF left_over > 0 THEN
      n := CASE WHEN a[1] = 1 THEN ARRAY[left_over, 0, now, 0, 0, 0, 0, 0] ELSE ARRAY[4, 0, left_over, left_over, left_over, left_over, 0, 0] END;
      changed := moved AND a[2] <> 1;
      IF changed THEN -- the block must not last for the step of the clock
        s.block_ends := now + left_over;
        s.block_began := now;
        s.expires_at := s.block_ends;
      END IF;
      RETURN;
    END IF;
    s.block_ends := NULL;
    s.block_began := NULL;
  END IF;
  CASE a[1]
  WHEN 1 THEN r := penstock.limit_bucket(s, a, now);
  WHEN 2 THEN r := penstock.limit_counter(s, a, now);
  WHEN 3 THEN r := penstock.limit_log(s, a, now);
  WHEN 4 THEN r := penstock.limit_quota(s, a, now);
  WHEN 5 THEN r := penstock.limit_semaphore(s, a, now);
  END CASE;
  s := r.s;
  n := r.n;
  changed := r.changed;
END $$;

-- limit_each executes calls that are independent of each other, in the order of their locks. Calls
-- with one key follow each other. Each has 16 arguments. If patience_ms is NULL, the statement is
-- part of a transaction of the application, and waits for locks. Otherwise it is a transaction of
-- its own. It then waits patience_ms milliseconds for the lock of its only key, or for none if that
-- is 0, and replies -1 about the keys that others have locked.
CREATE FUNCTION penstock.limit_each(patience_ms int, locks bigint[], keys bytea[], args bigint[])
RETURNS TABLE (call int, n bigint[]) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  all_keys CONSTANT bytea[] := keys; -- assigned arrays are indexed without a scan
  all_args CONSTANT bigint[] := args;
  wanted bytea;
  s penstock.limit_record;
  changed_records penstock.limit_record[] := '{}';
  a bigint[];
  r record;
  now bigint;
  got boolean;
  changed boolean := false;
BEGIN
  IF patience_ms IS NOT NULL THEN
    PERFORM penstock.limit_begin(patience_ms);
  END IF;
  FOR i IN 1 .. cardinality(all_keys) LOOP
    IF wanted IS NULL OR wanted <> all_keys[i] THEN
      IF changed THEN
        changed_records := changed_records || s;
        changed := false;
      END IF;
      wanted := all_keys[i];
      got := true;
      IF patience_ms = 0 THEN
        got := pg_try_advisory_xact_lock(locks[i]);
      ELSE
        PERFORM pg_advisory_xact_lock(locks[i]);
      END IF;
      IF got THEN
        SELECT * INTO s FROM penstock.limit_record l WHERE l.key = wanted; -- sees what the last holder of the lock has written
        s.key := wanted;
        now := penstock.limit_now();
      END IF;
    END IF;
    call := i;
    IF got THEN
      a := all_args[16 * i - 15 : 16 * i];
      IF a[1] = 1 AND s.block_ends IS NULL AND a[2] < 7 THEN
        r := penstock.limit_bucket(s, a, now); -- as limit_step does
      ELSE
        r := penstock.limit_step(s, a, now);
      END IF;
      n := r.n;
      IF r.changed THEN
        s := r.s;
        changed := true;
      END IF;
    ELSE
      n := '{-1}';
    END IF;
    RETURN NEXT;
  END LOOP;
  IF changed THEN
    changed_records := changed_records || s;
  END IF;
  IF changed_records <> '{}' THEN
    PERFORM penstock.limit_write(changed_records);
  END IF;
END $$;

-- limit_denies reports whether a call is denied about which a limiter replies n when it only looks.
CREATE FUNCTION penstock.limit_denies(a bigint[], n bigint[]) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN a[16] = 1 THEN true
    WHEN a[1] = 1 THEN n[1] > 0 OR n[5] = 1 OR a[6] > 0 AND a[6] > n[2] - a[7]
    ELSE n[1] = 4 OR a[4] > 0 AND n[1] <> 0 -- only a block denies a cost of 0
  END
$$;

-- limit_all executes groups of calls. sizes are how many calls each group has. The calls of a group
-- take all or nothing: if one of them denies, the replies are those of looks, and after it no other
-- starts a penalty. Argument 16 is 1 if a call denies in any case. See limit_each for patience_ms:
-- if another transaction has locked a key of a group, the reply about each of its calls is -1.
CREATE FUNCTION penstock.limit_all(patience_ms int, sizes int[], locks bigint[], keys bytea[], args bigint[])
RETURNS TABLE (call int, n bigint[]) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  records penstock.limit_record[];
  changed_records penstock.limit_record[];
  replies bigint[];
  a bigint[];
  looks bigint[];
  r record;
  now bigint;
  got boolean;
  denied boolean;
  first_call int := 1;
  last_call int;
  lock bigint;
  s penstock.limit_record;
BEGIN
  IF patience_ms IS NOT NULL THEN
    PERFORM penstock.limit_begin(patience_ms);
  END IF;
  FOR g IN 1 .. cardinality(sizes) LOOP
    last_call := first_call + sizes[g] - 1;
    got := true;
    FOR lock IN SELECT DISTINCT l FROM unnest(locks[first_call : last_call]) l ORDER BY l LOOP
      IF patience_ms IS NULL THEN
        PERFORM pg_advisory_xact_lock(lock);
      ELSE
        got := pg_try_advisory_xact_lock(lock);
        EXIT WHEN NOT got;
      END IF;
    END LOOP;
    now := penstock.limit_now();
    denied := false;
    records := '{}';
    changed_records := '{}';
    replies := '{}';
    FOR i IN first_call .. last_call LOOP
      EXIT WHEN NOT got;
      a := args[16 * i - 15 : 16 * i];
      looks := a;
      IF a[1] = 1 THEN
        looks[6] := 0; -- a bucket looks by taking nothing
      ELSE
        looks[2] := 1;
      END IF;
      s := penstock.limit_read(keys[i]);
      r := penstock.limit_step(s, looks, now);
      replies := replies || r.n;
      IF a[1] = 3 AND r.n[1] = 1 AND NOT denied THEN
        r := penstock.limit_step(s, a, now); -- starts the penalty
      END IF;
      IF r.changed THEN
        s := r.s;
        PERFORM penstock.limit_write(ARRAY[s]);
      END IF;
      denied := denied OR penstock.limit_denies(a, r.n);
      records := records || s;
    END LOOP;
    FOR i IN first_call .. last_call LOOP
      call := i;
      IF NOT got THEN
        n := '{-1}';
      ELSIF denied THEN
        n := replies[8 * (i - first_call) + 1 : 8 * (i - first_call) + 8];
      ELSE
        r := penstock.limit_step(records[i - first_call + 1], args[16 * i - 15 : 16 * i], now);
        n := r.n;
        IF r.changed THEN
          s := r.s;
          changed_records := changed_records || s;
        END IF;
      END IF;
      RETURN NEXT;
    END LOOP;
    IF changed_records <> '{}' THEN
      PERFORM penstock.limit_write(changed_records);
    END IF;
    first_call := last_call + 1;
  END LOOP;
END $$;

-- limit_sweep removes the expired records among the first ones after a key, and returns the last of
-- those that it has seen, how many these are, and how many it has removed. It waits for no lock.
CREATE FUNCTION penstock.limit_sweep(after bytea, most int, OUT last_key bytea, OUT seen int, OUT removed int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  now CONSTANT bigint := penstock.limit_now();
  page bytea[];
  expired bytea[];
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  page := ARRAY(SELECT r.key FROM penstock.limit_record r WHERE r.key > after ORDER BY r.key LIMIT most);
  seen := cardinality(page);
  last_key := page[seen];
  WITH gone AS (
    DELETE FROM penstock.limit_record WHERE key IN (
      SELECT r.key FROM penstock.limit_record r WHERE r.key = ANY (page) AND r.expires_at <= now FOR UPDATE SKIP LOCKED
    ) RETURNING key
  ) SELECT array_agg(key), count(*) INTO expired, removed FROM gone;
  DELETE FROM penstock.limit_permit p WHERE p.key = ANY (expired) AND p.ends <= now;
END $$;

-- limit_keys returns the first keys between two others.
CREATE FUNCTION penstock.limit_keys(after bytea, before bytea, most int) RETURNS SETOF bytea
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT r.key FROM penstock.limit_record r WHERE r.key > after AND r.key < before ORDER BY r.key LIMIT most
$$;

-- Who may use the schema may not decide about limits without a GRANT.
REVOKE EXECUTE ON FUNCTION penstock.limit_each, penstock.limit_all, penstock.limit_sweep, penstock.limit_keys FROM PUBLIC;
