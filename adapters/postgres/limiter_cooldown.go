package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A Cooldown is a [limit.Limiter] that enforces a [limit.CooldownPolicy] in PostgreSQL, so that
// many processes share it. Its decisions equal those of a cooldown in memory, on the clock of the
// server. A key in a penalty is denied without a round trip, for at most a second. See [LimitStore] for
// what all limiters of this package have in common.
//
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment. Each of them counts the calls in its own window and observes every
// penalty until its end. The calls of a key that they admit in any interval are at most the largest
// Max, plus the largest Max/Window times the length of the interval.
//
// If the server's clock goes backwards, a key's calls and penalty move with it at the next call: a
// penalty then lasts at most its length again. If the clock goes forward, the calls and penalties
// that it passes end. A Cooldown is safe for concurrent use. Beside
// its own methods, it has those of a [adapter.Checker], [limit.Blocker], [adapter.Batcher],
// [adapter.Rememberer] and [adapter.Describer], and Count, which returns how many admitted calls of a key
// are in the window.
type Cooldown struct {
	*cooldown
	rows *limitRows
}

type cooldown = batch.Cooldown

// NewCooldown returns a cooldown. It calls onPenalty, which may be nil and must return soon, once
// for every penalty that a call of this process starts. NewCooldown panics if the policy is not
// valid.
func (l *LimitStore) NewCooldown(policy limit.CooldownPolicy, onPenalty func(limit.Penalty)) *Cooldown {
	rows := l.rowsOf(limitLog, "cooldown", keyname.OfCooldown(policy))
	return &Cooldown{batch.NewCooldown("postgres", rows, policy, onPenalty), rows}
}

// resetPage is how many keys ResetAll finds at a time.
const resetPage = 1000

// ResetAll removes the records of all keys, one by one. Other processes may deny keys for up to a
// second more.
func (c *Cooldown) ResetAll(ctx context.Context) error {
	if err := c.resetNamed(ctx, c.rows.keys.prefix); err != nil {
		return err
	}
	after, before := c.rows.keys.prefix+":", c.rows.keys.prefix+";" // a semicolon follows the colon
	for {
		rows, err := c.rows.limits.pool.Query(ctx, c.rows.limits.sql.keys, []byte(after), []byte(before), resetPage)
		if err != nil {
			return fmt.Errorf("postgres: cooldown: %w", c.rows.limits.explain(err))
		}
		keys, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if err != nil {
			return fmt.Errorf("postgres: cooldown: %w", c.rows.limits.explain(err))
		}
		for _, key := range keys {
			after = string(key)
			if err := c.resetNamed(ctx, after); err != nil {
				return err
			}
		}
		if len(keys) < resetPage {
			batch.ForgetDenials(c.cooldown)
			return nil
		}
	}
}

// resetNamed is Reset for the record of a key.
func (c *Cooldown) resetNamed(ctx context.Context, name string) error {
	_, err := c.rows.limits.do(ctx, c.rows.keys.named(name, limitArgs{limitLog, opReset}))
	return err
}
