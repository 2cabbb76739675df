-- limit_lower_leases lowers the lows of all leases.
CREATE FUNCTION penstock.limit_lower_leases(leases penstock.limit_lease[], low bigint)
RETURNS penstock.limit_lease[] LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1 .. coalesce(cardinality(leases), 0) LOOP
    IF (leases[i]).amount <> -1 AND (leases[i]).period > low THEN
      leases[i].period := low;
    END IF;
  END LOOP;
  RETURN leases;
END $$;

-- limit_give_back lowers the lows of all leases as if the one with a low had taken fewer units. All have
-- been lowered. The low is NULL if only the time is known at which the units were taken.
CREATE FUNCTION penstock.limit_give_back(leases penstock.limit_lease[], units bigint, low bigint)
RETURNS penstock.limit_lease[] LANGUAGE plpgsql AS $$
DECLARE
  own bigint;
BEGIN
  FOR i IN 1 .. coalesce(cardinality(leases), 0) LOOP
    own := (leases[i]).period;
    IF (leases[i]).amount <> -1 THEN
      leases[i].period := greatest(CASE WHEN low IS NULL OR own >= low THEN own - units ELSE least(own, low - units) END, 0);
    END IF;
  END LOOP;
  RETURN leases;
END $$;

-- limit_add_mark adds the mark of a receipt, if there is room: otherwise the last mark stands for it,
-- whose low is less. Receipts with one low need one mark, that of the first.
CREATE FUNCTION penstock.limit_add_mark(leases penstock.limit_lease[], added penstock.limit_lease, most bigint)
RETURNS penstock.limit_lease[] LANGUAGE plpgsql AS $$
DECLARE
  kept penstock.limit_lease[];
BEGIN
  SELECT array_agg(v.l ORDER BY v.l) INTO kept FROM (
    SELECT ROW(max(u.ends), 0, -2, min(u.taken), u.period, 0, 0)::penstock.limit_lease FROM unnest(leases) u WHERE u.amount = -2 GROUP BY u.period
    UNION ALL
    SELECT ROW(u.ends, u.id, u.amount, u.taken, u.period, u.own_period, u.maximum)::penstock.limit_lease FROM unnest(leases) u WHERE u.amount <> -2
  ) v(l);
  IF (SELECT count(*) FROM unnest(kept) u WHERE u.amount = -2) < most THEN
    kept := penstock.limit_add_lease(kept, added);
  END IF;
  RETURN kept;
END $$;

-- limit_bucket executes one call of a token bucket. The numbers of a record are: the time of its
-- last change; the units that the bucket was missing then; and of the policy that changed it, the
-- units that return in a microsecond, the units of a token, and the capacity in tokens; and, while it has
-- leases, the least that it was missing before a change since all lows were lowered.
--
-- The arguments of a call, after the kind and the operation, are: (3) the units that return in a
-- microsecond; (4) the units of a token; (5) the capacity; (6) the largest number of units to take;
-- (7) the lowest balance that the call may leave, which is negative for a deficit; (8) a divisor:
-- the call takes the largest multiple of it that is possible; (9) for "undo", when the units were
-- taken; and of a lease (10) its identifier, or 0 for the mark of a receipt, (11) its microseconds,
-- (12) how many a bucket may have, and for "settle" (13) the units to take if the bucket has the
-- lease, negative if they return, and (14) 1 if they may.
--
-- The reply is: the microseconds until a block ends; what the bucket held before, in units; the
-- time; the microseconds until the first lease ends that it has afterwards, or 0; and 1 if it may
-- have no more.
CREATE FUNCTION penstock.limit_bucket(INOUT s penstock.limit_record, a bigint[], now bigint,
  OUT n bigint[], OUT changed boolean) LANGUAGE plpgsql AS $$
DECLARE
  per_micro CONSTANT bigint := a[3];
  per_token CONSTANT bigint := a[4];
  full_units CONSTANT bigint := a[4] * a[5];
  most_missing CONSTANT bigint := 4503599627370496; -- MaxDeficit
  old bigint[] := s.numbers;
  missing bigint := 0;
  held bigint;
  taken bigint := 0;
  returned bigint;
  is_own boolean := false; -- this policy has changed the bucket last
  has_all bigint := 0;
  infinite CONSTANT bigint := 9007199254740992;
  low bigint := infinite; -- of the record
  l penstock.limit_lease;
  entries penstock.limit_lease[];
  first_end bigint;
  at int;
  ended record;
BEGIN
  changed := false;
  IF old IS NOT NULL THEN
    missing := old[2];
    is_own := old[3] = per_micro AND old[4] = per_token AND old[5] = a[5];
    IF now < old[1] THEN
      changed := true; -- the clock went backwards; without a change, nothing would return until old[1]
    ELSE
      missing := missing - least(now - old[1], missing / old[3] + 1) * old[3];
    END IF;
    IF s.leases IS NOT NULL THEN
      -- Each lease ends as an undo at its end. What leases return and what returns with time can be
      -- subtracted in any order, because nothing else has changed the bucket.
      low := coalesce(old[6], infinite);
      ended := penstock.limit_end_leases(s.leases, now);
      changed := changed OR ended.moved;
      entries := ended.ended || ended.leases;
      FOR i IN 1 .. coalesce(cardinality(ended.ended), 0) LOOP
        l := entries[i];
        IF l.amount > 0 THEN
          low := least(low, greatest(old[2] - greatest(l.ends - old[1], 0) * old[3], 0));
          entries := penstock.limit_lower_leases(entries, low);
          returned := least(l.amount, (entries[i]).period);
          entries := penstock.limit_give_back(entries, returned, (entries[i]).period);
          missing := missing - returned;
          old[2] := old[2] - returned;
        END IF;
      END LOOP;
      s.leases := nullif(entries[coalesce(cardinality(ended.ended), 0) + 1 :], '{}');
      low := least(low, greatest(missing, 0));
    END IF;
    missing := greatest(missing, 0);
    IF NOT is_own THEN
      IF missing > 0 THEN
        -- Rounded up: a change of the policy creates no tokens. A policy that refills faster than
        -- the other one returns a RetryAfter that holds only with its own numbers.
        changed := changed OR per_micro::numeric * old[4] > old[3]::numeric * per_token;
        missing := least(div(missing::numeric * per_token + old[4] - 1, old[4]::numeric), most_missing);
      END IF;
      IF s.leases IS NOT NULL THEN -- units of one policy mean nothing to another
        s.leases := ARRAY(SELECT (u.ends, u.id, least(u.amount, 0), u.taken, CASE WHEN u.amount = -1 THEN u.period ELSE 0 END, u.own_period, u.maximum)::penstock.limit_lease
          FROM unnest(s.leases) WITH ORDINALITY u ORDER BY u.ordinality);
      END IF;
    END IF;
  END IF;
  held := full_units - missing;

  CASE a[2]
  WHEN 4 THEN -- refund
    taken := greatest(a[6], -missing);
  WHEN 5 THEN -- undo; another policy may have refilled faster
    IF is_own THEN
      s.leases := penstock.limit_lower_leases(s.leases, low);
      low := infinite;
      SELECT u.ends, u.id, u.amount, u.taken, u.period, u.own_period, u.maximum INTO l
      FROM unnest(s.leases) u WHERE u.amount = -2 AND u.taken <= a[9] ORDER BY u.taken DESC, u.period DESC LIMIT 1;
      IF FOUND THEN
        taken := -least(-a[6], l.period);
        s.leases := penstock.limit_give_back(s.leases, -taken, l.period);
      ELSE
        returned := least(greatest(now - a[9], 0), -a[6] / per_micro + 1) * per_micro;
        taken := greatest(least(a[6] + returned, 0), -missing);
        s.leases := penstock.limit_give_back(s.leases, -taken, NULL);
      END IF;
    END IF;
  WHEN 6 THEN -- settle
    taken := a[6];
    at := penstock.limit_find_lease(s.leases, a[10]);
    IF at IS NOT NULL THEN
      l := s.leases[at];
      IF l.amount < 0 THEN
        taken := 0; -- again
      ELSE
        taken := a[13];
        IF taken < 0 THEN
          s.leases := penstock.limit_lower_leases(s.leases, low);
          low := infinite;
          taken := CASE WHEN a[14] = 1 AND l.amount > 0 THEN greatest(taken, -(s.leases[at]).period) ELSE 0 END;
          s.leases := penstock.limit_give_back(s.leases, -taken, (s.leases[at]).period);
        END IF;
        s.leases := penstock.limit_settle_lease(s.leases, at, now, a[12]);
        changed := true;
      END IF;
    END IF;
    taken := least(taken, most_missing - missing);
  ELSE -- take
    taken := greatest(least(a[6], (held - a[7]) / a[8] * a[8]), 0);
    IF a[10] > 0 AND (SELECT o.n FROM penstock.limit_open_leases(s.leases) o) >= a[12] THEN
      taken := 0;
      has_all := 1;
    ELSIF a[11] > 0 AND taken > 0 THEN
      s.leases := penstock.limit_lower_leases(s.leases, low);
      low := infinite;
      l := (now + a[11], a[10], taken, now, missing + taken, 0, 0)::penstock.limit_lease;
      IF a[10] > 0 THEN
        s.leases := penstock.limit_add_lease(s.leases, l);
      ELSE
        l.amount := -2;
        s.leases := penstock.limit_add_mark(s.leases, l, a[12]);
      END IF;
    END IF;
  END CASE;

  IF s.leases IS NOT NULL THEN
    SELECT o.first_end INTO first_end FROM penstock.limit_open_leases(s.leases) o;
  END IF;
  n := ARRAY[0, held, now, coalesce(first_end - now, 0), has_all, 0, 0, 0];
  changed := changed OR taken <> 0;
  IF changed THEN
    missing := missing + taken;
    s.numbers := ARRAY[now, missing, per_micro, per_token, a[5]];
    s.expires_at := now + missing / per_micro + 1;
    IF s.leases IS NOT NULL THEN
      s.numbers := s.numbers || low;
      s.expires_at := greatest(s.expires_at, (SELECT max(u.ends) FROM unnest(s.leases) u));
    END IF;
  END IF;
END $$;
