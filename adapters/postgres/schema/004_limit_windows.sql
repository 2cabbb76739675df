-- The arguments of a call of all other kinds, after the kind and the operation, are: (3) the
-- maximum; (4) the cost; (5) for "undo" to what the tokens belong, and for "take" and "look" how
-- many microseconds the call may wait; of a lease (6) its identifier, (7) its microseconds, (8) how
-- many a key may have, and for "settle" (9) what to take if the key has the lease, negative if it
-- returns, and (10) 1 if it may; and from (11) on those of the kind.
--
-- The reply is: 0 if allowed, 1 if a penalty starts, 2 if a penalty is in effect, 3 if denied, 4 if
-- blocked; the tokens that count, or the maximum while tokens are reserved; the microseconds until
-- the cost can be spent, or the same call can be allowed, until no tokens count, until a denied key
-- has more tokens, and until it has all; the tokens that the call has taken; and to what they
-- belong.

-- limit_counter executes one call of a sliding-window counter. (11) is the window in milliseconds.
-- The numbers of a record are milliseconds and tokens: the length of its windows; when the current
-- one began; the tokens of the previous and of the current one; when the record was written; the
-- tokens that are reserved in the next window; and when the last reserved tokens of any window can
-- be spent. Counts are at most twice the maximum, so products of a count and a length fit.
CREATE FUNCTION penstock.limit_counter(INOUT s penstock.limit_record, a bigint[], now bigint,
  OUT n bigint[], OUT changed boolean) LANGUAGE plpgsql AS $$
DECLARE
  op CONSTANT bigint := a[2];
  most CONSTANT bigint := a[3];
  own_length CONSTANT bigint := a[11];
  tick CONSTANT bigint := now / 1000;
  old bigint[] := s.numbers;
  length bigint := a[11];
  start bigint := 0;
  previous bigint := 0;
  current bigint := 0;
  reserved bigint := 0;
  reserved_at bigint := 0;
  cost bigint := a[4];
  step bigint := 0;
  passed bigint;
  counted bigint;
  closed boolean;
  newest bigint;
  costs bigint[] := '{}'; -- for the loop that finds when each can be spent
  reached bigint[] := '{}';
  room bigint;
  at bigint;
  reached_at bigint;
  more bigint;
  empty_at bigint;
  outcome bigint := 0;
  wait bigint := 0;
  more_after bigint := 0;
  all_after bigint := 0;
  taken bigint := 0;
  stamp bigint;
BEGIN
  changed := false;
  IF old IS NOT NULL THEN
    -- If the clock went backwards, the windows move with it, so that nothing lasts for the step.
    step := greatest(old[5] - tick, 0);
    length := old[1];
    passed := greatest((tick - (old[2] - step)) / length, 0);
    start := old[2] - step + passed * length;
    reserved_at := old[7] - step;
    CASE passed
    WHEN 0 THEN previous := old[3]; current := old[4]; reserved := old[6];
    WHEN 1 THEN previous := old[4]; current := old[6];
    WHEN 2 THEN previous := old[6];
    ELSE NULL;
    END CASE;
  END IF;
  IF previous + current + reserved = 0 THEN
    length := own_length;
    start := tick - tick % own_length;
    reserved_at := 0;
  END IF;
  -- No token can be spent in the current window while tokens of the next one are reserved, because
  -- those of the current one count in it, too, and by a policy with windows of another length while
  -- any are, because they would return at another rate.
  closed := reserved > 0 OR tick < reserved_at AND length <> own_length;
  counted := (previous * (start + length - tick) + length - 1) / length + current;
  stamp := start;

  IF op = 4 OR op = 5 THEN -- refund, undo
    IF op = 4 OR a[5] = start + length THEN
      newest := least(cost, reserved);
      reserved := reserved - newest;
      cost := cost - newest;
    END IF;
    IF op = 4 OR a[5] = start THEN
      newest := least(cost, current);
      current := current - newest;
      cost := cost - newest;
    END IF;
    IF op = 4 OR a[5] = start - length THEN
      previous := previous - least(cost, previous);
    END IF;
    changed := old IS NOT NULL;
  ELSIF op = 3 THEN -- charge
    current := greatest(current, least(current + cost, 2 * most, 4503599627370496 / length));
    changed := true;
  ELSE
    changed := step > 0 AND op <> 1;
    IF op = 2 AND cost > 0 THEN
      cost := CASE WHEN closed THEN 1 ELSE greatest(least(cost, most - counted), 1) END;
    END IF;
    IF cost > 0 AND NOT closed AND counted + cost <= most THEN
      IF length <> own_length THEN
        -- The tokens of another policy count as those of a window that has just ended: as many as
        -- before, and they return at the rate of this policy.
        previous := counted;
        current := 0;
        length := own_length;
        start := tick;
        stamp := tick;
      END IF;
      current := current + cost;
      counted := counted + cost;
      taken := cost;
      changed := op <> 1;
    ELSIF cost > 0 THEN
      -- When the cost, one more token than there are, and all tokens can be spent: at the first
      -- tick of the current window, or of one of the three after it.
      more := CASE WHEN closed THEN 1 ELSE greatest(most - counted, 0) + 1 END;
      costs := ARRAY[cost, more, most];
      FOR i IN 1 .. 3 LOOP
        room := most - costs[i];
        at := tick;
        IF room < reserved THEN -- in the window after the next one, reserved is previous
          at := start + 3 * length - room * length / reserved;
        ELSIF current > room - reserved THEN -- in the next one, current is previous
          at := start + 2 * length - (room - reserved) * length / current;
        ELSIF reserved > 0 THEN
          at := start + length;
        ELSIF counted > room THEN
          at := start + length - (room - current) * length / previous;
        END IF;
        reached := reached || CASE WHEN length = own_length THEN at ELSE greatest(at, reserved_at) END;
      END LOOP;
      at := reached[1];
      reached_at := at * 1000;
      IF length = own_length THEN -- no tokens are reserved in windows of another policy
        reached_at := greatest(reached_at - CASE WHEN op = 2 THEN 0 ELSE a[5] END, (start + ((at - start) / length - 1) * length) * 1000);
      END IF;
      IF reached_at > now THEN
        outcome := 3;
        wait := reached_at - now;
        more_after := greatest(reached[2] * 1000 - now, 0);
        all_after := greatest(reached[3] * 1000 - now, 0);
      ELSE
        IF at >= start + length THEN
          stamp := start + length;
          reserved := reserved + cost;
          closed := true;
        ELSE
          current := current + cost;
          counted := counted + cost;
        END IF;
        reserved_at := greatest(reserved_at, at);
        wait := at * 1000 - now;
        taken := cost;
        changed := op <> 1;
      END IF;
    END IF;
  END IF;

  empty_at := 1000 * CASE WHEN reserved > 0 THEN start + 3 * length WHEN current > 0 THEN start + 2 * length
    WHEN previous > 0 THEN start + length ELSE 0 END;
  n := ARRAY[outcome, CASE WHEN closed THEN most ELSE counted END, wait, greatest(empty_at - now, 0), more_after, all_after, taken, stamp];
  IF changed THEN
    s.numbers := ARRAY[length, start, previous, current, tick, reserved, CASE WHEN reserved > 0 OR tick < reserved_at THEN reserved_at ELSE 0 END];
    s.expires_at := greatest(empty_at, now);
  END IF;
END $$;

-- limit_log executes one call of a sliding-window log, or of a cooldown: a log with penalties. (11)
-- and (12) are the window and the penalty in microseconds; the latter is 0 for a log. The numbers
-- of a record are: when it was written; the end of the penalty, or 0; and the largest maximum and
-- the largest window of all policies that have written it. Its times are at least the newest ones,
-- twice as many as the largest maximum, of the last largest window. Those of reservations are in
-- the future. So a process with any of these policies finds the tokens that it must count: the
-- newest of its window, at most twice as many as its maximum.
CREATE FUNCTION penstock.limit_log(INOUT s penstock.limit_record, a bigint[], now bigint,
  OUT n bigint[], OUT changed boolean) LANGUAGE plpgsql AS $$
DECLARE
  op CONSTANT bigint := a[2];
  most CONSTANT bigint := a[3];
  window_length CONSTANT bigint := a[11];
  penalty CONSTANT bigint := a[12];
  max_wait CONSTANT bigint := CASE WHEN a[2] <= 1 THEN a[5] ELSE 0 END;
  old bigint[] := s.numbers;
  times bigint[] := coalesce(s.times, '{}');
  keep bigint := a[3];
  retain bigint := a[11];
  until_ bigint := 0; -- the end of the penalty
  cost bigint := a[4];
  outcome bigint := 0;
  outside bigint; -- how many of the times do not count
  stored bigint;
  count bigint;
  allowed_at bigint := 0;
  reached_at bigint;
  more_at bigint := 0;
  all_at bigint := 0;
  last_at bigint;
  taken bigint := 0;
  stamp bigint := now;
  added bigint := 0;
  first_removed bigint;
  position bigint;
BEGIN
  changed := false;
  IF old IS NOT NULL THEN
    until_ := old[2];
    keep := greatest(keep, old[3]);
    retain := greatest(retain, old[4]);
    IF now < old[1] THEN
      -- If the clock went backwards, the whole record moves with it, so that nothing lasts for the
      -- step.
      times := ARRAY(SELECT greatest(t - (old[1] - now), 0) FROM unnest(times) WITH ORDINALITY u(t, i) ORDER BY i);
      until_ := greatest(until_ - (old[1] - now), 0);
      changed := op <> 1;
    END IF;
  END IF;
  stored := cardinality(times);
  outside := greatest(penstock.limit_older(times, now - window_length), stored - 2 * most);
  count := stored - outside;

  IF op = 4 OR op = 5 THEN -- refund, undo
    first_removed := outside;
    position := stored;
    IF op = 5 THEN
      first_removed := greatest(outside, penstock.limit_older(times, a[5] - 1));
      position := penstock.limit_older(times, a[5]);
    END IF;
    first_removed := greatest(first_removed, position - cost);
    IF first_removed < position THEN
      times := times[1 : first_removed] || times[position + 1 :];
      changed := true;
    END IF;
  ELSIF op = 3 THEN -- charge
    added := least(cost, 2 * most);
    changed := true;
  ELSE
    IF op = 2 AND cost > 0 THEN
      cost := greatest(least(cost, most - count), 1);
    END IF;
    IF until_ > now THEN
      outcome := 2;
      more_at := until_;
    ELSIF cost > 0 THEN
      allowed_at := greatest(until_, penstock.limit_leaves(times, window_length, outside, count + cost - most));
      -- A log with reservations has at most twice as many tokens as the maximum.
      reached_at := greatest(allowed_at - max_wait, penstock.limit_leaves(times, window_length, outside, count + cost - 2 * most));
      IF reached_at <= now THEN
        stamp := greatest(allowed_at, now);
        allowed_at := stamp;
        added := cost;
        taken := cost;
        changed := op <> 1;
      ELSIF penalty = 0 THEN
        outcome := 3;
      ELSE
        outcome := 1;
        until_ := now + penalty;
        changed := op <> 1;
      END IF;
    END IF;
    IF outcome > 0 THEN
      allowed_at := greatest(until_, penstock.limit_leaves(times, window_length, outside, count + cost - most));
      IF outcome = 1 THEN
        until_ := allowed_at; -- the penalty also lasts until the window admits the call
        more_at := until_;
      ELSIF outcome = 3 THEN
        allowed_at := reached_at;
        more_at := greatest(until_, penstock.limit_leaves(times, window_length, outside, count + greatest(most - count, 0) + 1 - most));
      END IF;
      all_at := greatest(until_, penstock.limit_leaves(times, window_length, outside, count));
    END IF;
  END IF;

  last_at := greatest(coalesce(times[cardinality(times)], 0), CASE WHEN added > 0 THEN stamp ELSE 0 END);
  -- The tokens of the window may be more than count, if a policy with a larger maximum has counted them.
  n := ARRAY[outcome, stored - penstock.limit_older(times, now - window_length) + taken, greatest(allowed_at - now, 0), greatest(until_ - now, last_at + window_length - now, 0),
    greatest(more_at - now, 0), greatest(all_at - now, 0), taken, stamp];
  IF NOT changed THEN
    RETURN;
  END IF;
  IF added > 0 THEN
    position := penstock.limit_older(times, stamp); -- those of reservations are later
    times := times[1 : position] || array_fill(stamp, ARRAY[added::int]) || times[position + 1 :];
  END IF;
  stored := cardinality(times);
  position := least(greatest(penstock.limit_older(times, now - retain), stored - 2 * keep), stored);
  s.times := times[position + 1 :];
  s.numbers := ARRAY[now, until_, keep, retain];
  s.expires_at := greatest(until_, last_at + retain, now);
END $$;

-- limit_older returns how many of the times are at one or before.
CREATE FUNCTION penstock.limit_older(times bigint[], at bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  low int := 0;
  high int := cardinality(times);
  middle int;
BEGIN
  WHILE low < high LOOP
    middle := (low + high + 1) / 2;
    IF times[middle] <= at THEN
      low := middle;
    ELSE
      high := middle - 1;
    END IF;
  END LOOP;
  RETURN low;
END $$;

-- limit_leaves returns when that many of the tokens that count, the oldest ones, no longer do.
CREATE FUNCTION penstock.limit_leaves(times bigint[], window_length bigint, outside bigint, tokens bigint)
RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN tokens > 0 THEN times[outside + tokens] + window_length ELSE 0 END
$$;
