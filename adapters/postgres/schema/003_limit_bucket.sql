-- limit_bucket executes one call of a token bucket. The numbers of a record are: the time of its
-- last change; the units that the bucket was missing then; and of the policy that changed it, the
-- units that return in a microsecond, the units of a token, and the capacity in tokens.
--
-- The arguments of a call, after the kind and the operation, are: (3) the units that return in a
-- microsecond; (4) the units of a token; (5) the capacity; (6) the largest number of units to take;
-- (7) the lowest balance that the call may leave, which is negative for a deficit; (8) a divisor:
-- the call takes the largest multiple of it that is possible; (9) for "undo", since when those
-- units do not return that have returned with time; and of a lease (10) its identifier, (11) its
-- microseconds, (12) how many a bucket may have, and for "settle" (13) the units to take if the
-- bucket has the lease, negative if they return, and (14) 1 if they may.
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
  l penstock.limit_lease;
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
      ended := penstock.limit_end_leases(s.leases, now);
      s.leases := ended.leases;
      changed := changed OR ended.moved;
      FOREACH l IN ARRAY ended.ended LOOP
        missing := missing - greatest(l.amount - (l.ends - l.taken) * old[3], 0);
      END LOOP;
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
        s.leases := ARRAY(SELECT (u.ends, u.id, least(u.amount, 0), u.taken, u.period, u.own_period, u.maximum)::penstock.limit_lease
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
      returned := least(greatest(now - a[9], 0), -a[6] / per_micro + 1) * per_micro;
      taken := greatest(least(a[6] + returned, 0), -missing);
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
          returned := CASE WHEN a[14] = 1 THEN greatest(l.amount - greatest(now - l.taken, 0) * per_micro, 0) ELSE 0 END;
          taken := greatest(taken, -returned, -missing);
        END IF;
        s.leases[at].amount := -1;
        changed := true;
      END IF;
    END IF;
    taken := least(taken, most_missing - missing);
  ELSE -- take
    taken := greatest(least(a[6], (held - a[7]) / a[8] * a[8]), 0);
    IF a[10] > 0 THEN
      IF cardinality(s.leases) >= a[12] THEN
        taken := 0;
        has_all := 1;
      ELSIF taken > 0 THEN
        s.leases := penstock.limit_add_lease(s.leases, (now + a[11], a[10], taken, now, 0, 0, 0)::penstock.limit_lease);
      END IF;
    END IF;
  END CASE;

  n := ARRAY[0, held, now, coalesce((s.leases[1]).ends - now, 0), has_all, 0, 0, 0];
  changed := changed OR taken <> 0;
  IF changed THEN
    missing := missing + taken;
    s.numbers := ARRAY[now, missing, per_micro, per_token, a[5]];
    s.expires_at := greatest(now + missing / per_micro + 1, (s.leases[cardinality(s.leases)]).ends);
  END IF;
END $$;
