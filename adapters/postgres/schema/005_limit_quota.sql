-- limit_quota executes one call of a quota. (11) to (15) are when the previous, the current and the
-- next two periods of the caller's clock begin, and when the last one ends. The numbers of a record
-- are: the bounds of its period and the tokens taken in it; and the tokens reserved in the next
-- period, which begins when this one ends, and when it ends. Counts are at most MaxDeficit. The end
-- of a lease returns nothing to another policy than that which took it. The reply is -2 and the
-- time if the caller's clock differs by more than a period.
CREATE FUNCTION penstock.limit_quota(INOUT s penstock.limit_record, a bigint[], now bigint,
  OUT n bigint[], OUT changed boolean) LANGUAGE plpgsql AS $$
DECLARE
  op CONSTANT bigint := a[2];
  most CONSTANT bigint := a[3];
  most_counted CONSTANT bigint := 4503599627370496; -- MaxDeficit
  takes CONSTANT boolean := a[2] <= 1;
  max_wait CONSTANT bigint := CASE WHEN a[2] <= 1 THEN a[5] ELSE 0 END;
  old bigint[] := s.numbers;
  cost bigint := a[4];
  start bigint; -- of the period that counts
  ends bigint;
  own_start bigint; -- of the caller's current period
  finish bigint;
  used bigint := 0;
  reserved bigint := 0;
  reserved_ends bigint := 0;
  used_before bigint;
  reserved_before bigint;
  first_lease_ends bigint;
  has_all boolean;
  l penstock.limit_lease;
  at int;
  ended record;
  open_leases bigint := 0; -- how many are not settled
  outcome bigint := 0;
  wait bigint;
  retry bigint := 0;
  taken bigint := 0;
  stamp bigint := 0;
  newest bigint;
  empty_at bigint;
  more_after bigint := 0;
  all_after bigint := 0;
BEGIN
  changed := false;
  FOR i IN 11 .. 13 LOOP
    IF a[i] <= now AND now < a[i + 1] THEN
      own_start := a[i];
      finish := a[i + 1];
    END IF;
  END LOOP;
  IF own_start IS NULL THEN
    n := ARRAY[-2, now, 0, 0, 0, 0, 0, 0];
    RETURN;
  END IF;
  start := own_start;
  ends := finish;
  IF s.leases IS NOT NULL THEN
    ended := penstock.limit_end_leases(s.leases, now);
    s.leases := ended.leases;
    changed := ended.moved AND op <> 1;
    FOREACH l IN ARRAY ended.ended LOOP
      IF l.amount > 0 AND l.period = old[1] AND l.maximum = most AND l.own_period = ANY (a[11:13]) THEN
        old[3] := greatest(old[3] - l.amount, 0);
      END IF;
    END LOOP;
  END IF;
  IF old[4] > 0 AND old[2] <= now THEN -- the next period has begun
    old := ARRAY[old[2], old[5], old[4], 0, 0];
  END IF;
  IF now < old[2] THEN
    IF finish < old[1] THEN
      -- The clock went back further than to the period before that of the record: what was taken
      -- counts in the period that it went to.
      used := least(old[3] + old[4], most_counted);
      changed := op <> 1;
    ELSE
      start := old[1];
      ends := old[2];
      used := old[3];
      reserved := old[4];
      reserved_ends := old[5];
    END IF;
  END IF;
  used_before := used;
  reserved_before := reserved;
  IF s.leases IS NOT NULL THEN
    SELECT o.n, o.first_end INTO open_leases, first_lease_ends FROM penstock.limit_open_leases(s.leases) o;
  END IF;
  has_all := takes AND a[6] > 0 AND open_leases >= a[8];

  IF op = 6 THEN -- settle
    at := penstock.limit_find_lease(s.leases, a[6]);
    IF at IS NOT NULL THEN
      l := s.leases[at];
      cost := CASE WHEN l.amount < 0 THEN 0 ELSE a[9] END; -- nothing again
      IF l.amount >= 0 THEN
        s.leases := penstock.limit_settle_lease(s.leases, at, now, a[8]);
        changed := true;
      END IF;
      IF cost < 0 AND a[10] = 1 AND l.period = start THEN
        used := greatest(used + cost, 0);
      END IF;
    END IF;
  ELSIF op = 4 OR op = 5 THEN -- refund, undo
    IF op = 4 OR a[5] = ends THEN
      newest := least(cost, reserved);
      reserved := reserved - newest;
      cost := cost - newest;
    END IF;
    IF op = 4 OR a[5] = start THEN
      used := used - least(cost, used);
    END IF;
  END IF;
  IF op = 3 OR op = 6 AND cost >= 0 THEN -- charge
    used := least(used + cost, most_counted);
    IF reserved = 0 THEN
      ends := greatest(ends, finish); -- a policy with other periods may have written the record
    END IF;
  ELSIF op <= 2 AND cost > 0 THEN
    IF op = 2 THEN
      cost := CASE WHEN reserved > 0 THEN 1 ELSE greatest(least(cost, most - used), 1) END;
    END IF;
    wait := ends - now;
    stamp := start;
    IF reserved = 0 AND used + cost <= most AND has_all THEN
      outcome := 3;
    ELSIF reserved = 0 AND used + cost <= most THEN
      taken := cost;
      used := used + cost;
      ends := greatest(ends, finish);
      IF takes AND a[6] > 0 AND op <> 1 THEN
        s.leases := penstock.limit_add_lease(s.leases, (now + a[7], a[6], cost, now, start, own_start, most)::penstock.limit_lease);
      END IF;
    ELSIF reserved + cost > most THEN -- not in the next period, and no call reserves in a later one
      outcome := 3;
      retry := greatest(wait, reserved_ends - max_wait - now);
    ELSIF wait > max_wait THEN
      outcome := 3;
      retry := wait - max_wait;
    ELSE
      taken := cost;
      retry := wait;
      stamp := ends;
      reserved := reserved + cost;
      -- The end of the caller's period that contains the beginning of the next one; of a later one
      -- if a policy with longer periods has written the record.
      reserved_ends := greatest(reserved_ends, CASE WHEN a[12] > ends THEN a[12] WHEN a[13] > ends THEN a[13]
        WHEN a[14] > ends THEN a[14] WHEN a[15] > ends THEN a[15] ELSE ends + finish - own_start END);
    END IF;
  END IF;

  empty_at := CASE WHEN reserved > 0 THEN reserved_ends WHEN used > 0 THEN ends ELSE now END;
  IF outcome = 3 THEN
    more_after := CASE WHEN reserved < most THEN ends ELSE reserved_ends END - now;
    all_after := CASE WHEN reserved > 0 THEN reserved_ends ELSE ends END - now;
    IF first_lease_ends IS NOT NULL THEN
      more_after := least(more_after, first_lease_ends - now);
      IF has_all THEN
        retry := greatest(retry, first_lease_ends - now);
        more_after := 0; -- denies calls without a lease for no time
      END IF;
    END IF;
  END IF;
  n := ARRAY[outcome, CASE WHEN reserved > 0 THEN most ELSE used END, retry, empty_at - now, more_after, all_after, taken, stamp];
  changed := op <> 1 AND (changed OR used <> used_before OR reserved <> reserved_before);
  IF changed THEN
    s.numbers := CASE WHEN used > 0 OR reserved > 0 OR s.leases IS NOT NULL THEN ARRAY[start, ends, used, reserved, CASE WHEN reserved > 0 THEN reserved_ends ELSE 0 END] END;
    s.expires_at := greatest(empty_at, (s.leases[cardinality(s.leases)]).ends);
  END IF;
END $$;

-- limit_semaphore executes one call of a semaphore. The arguments, after the kind and the
-- operation, are: (3) the permits of the key; (4) the microseconds of a lease; (5) the holder. The
-- reply is 1 if the holder has a permit and otherwise 0, and the permits in use.
CREATE FUNCTION penstock.limit_semaphore(INOUT s penstock.limit_record, a bigint[], now bigint,
  OUT n bigint[], OUT changed boolean) LANGUAGE plpgsql AS $$
DECLARE
  lease_ends CONSTANT bigint := now + a[4];
  in_use bigint;
BEGIN
  changed := false;
  IF a[2] = 10 THEN -- release
    DELETE FROM penstock.limit_permit p WHERE p.key = s.key AND p.holder = a[5];
    n := ARRAY[0, 0, 0, 0, 0, 0, 0, 0];
    RETURN;
  END IF;
  -- If the clock went backwards, no lease may last longer than usual.
  UPDATE penstock.limit_permit p SET ends = lease_ends WHERE p.key = s.key AND p.ends > lease_ends;
  DELETE FROM penstock.limit_permit p WHERE p.key = s.key AND p.ends <= now;
  SELECT count(*) INTO in_use FROM penstock.limit_permit p WHERE p.key = s.key AND p.holder <> a[5];
  -- A renewal counts even if no permit is free: its holder works, whatever the table says.
  IF in_use >= a[3] AND a[2] <> 9 THEN
    n := ARRAY[0, in_use, 0, 0, 0, 0, 0, 0];
    RETURN;
  END IF;
  INSERT INTO penstock.limit_permit (key, holder, ends) VALUES (s.key, a[5], lease_ends)
  ON CONFLICT (key, holder) DO UPDATE SET ends = EXCLUDED.ends;
  n := ARRAY[1, in_use + 1, 0, 0, 0, 0, 0, 0];
  IF coalesce(s.expires_at, 0) < lease_ends THEN
    changed := true; -- seldom: the sweep of a record later than needed does no harm
    s.expires_at := lease_ends + a[4];
  END IF;
END $$;
