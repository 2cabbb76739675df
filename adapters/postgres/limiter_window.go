package postgres

import (
	"context"
	"fmt"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A SlidingLog is a [limit.Limiter] that enforces a [limit.WindowPolicy] exactly, in PostgreSQL, so
// that many processes share it. Its decisions equal those of a sliding-window log in memory, on the
// clock of the server. A key that lacks tokens is denied without a round trip, for at most a
// second. See [Limits] for what all limiters of this package have in common.
//
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment or after SetPolicy. Each of them counts the tokens in its own window.
// The tokens of a key that they grant in any interval are at most the largest Max, plus the largest
// Max/Window times the length of the interval.
//
// If the server's clock goes backwards, a key's tokens move with it at the next call: they return
// at most a window later than otherwise. If the clock goes forward, tokens return early, at most
// Max of them.
//
// A key's record has 8 bytes for each of its last Max tokens, or twice as many with reservations
// and charges, and every call that takes tokens writes all of it: use a [SlidingCounter] for a Max
// of several hundred. A SlidingLog is safe for concurrent use.
type SlidingLog struct {
	*limitRecords
}

// A SlidingCounter is a [limit.Limiter] that enforces a [limit.WindowPolicy] with two counts per
// key, in PostgreSQL, so that many processes share it. Its decisions equal those of a
// sliding-window counter in memory, which describes them, on the clock of the server. A key that
// lacks tokens is denied without a round trip, for at most a second. See [Limits] for what all
// limiters of this package have in common.
//
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment or after SetPolicy. The tokens of a key that they grant in any
// interval are at most the largest Max, plus the largest Max/Window times the length of the
// interval, rounded up to milliseconds. If windows differ, the record has the window of the policy
// that took tokens last; those of the key then begin with that call, until its record has expired.
// No call reserves in windows of another length: it is denied until its cost is allowed at once.
//
// If the server's clock goes backwards, a key's windows move with it at the next call: tokens
// return at most two windows later than otherwise. If the clock goes forward, tokens return early,
// at most Max of them. A SlidingCounter is safe for concurrent use.
type SlidingCounter struct {
	*limitRecords
}

var (
	_ limit.Checker                          = (*SlidingLog)(nil)
	_ limit.Blocker                          = (*SlidingLog)(nil)
	_ limit.Rememberer                       = (*SlidingLog)(nil)
	_ limit.Batcher                          = (*SlidingLog)(nil)
	_ limit.Describer                        = (*SlidingLog)(nil)
	_ limit.PolicySetter[limit.WindowPolicy] = (*SlidingLog)(nil)
	_ limit.Checker                          = (*SlidingCounter)(nil)
	_ limit.Blocker                          = (*SlidingCounter)(nil)
	_ limit.Rememberer                       = (*SlidingCounter)(nil)
	_ limit.Batcher                          = (*SlidingCounter)(nil)
	_ limit.Describer                        = (*SlidingCounter)(nil)
	_ limit.PolicySetter[limit.WindowPolicy] = (*SlidingCounter)(nil)
)

// NewSlidingLog returns a sliding-window log. It panics if the policy is not valid for a log
// ([limit.WindowPolicy.ValidateLog]).
func (l *Limits) NewSlidingLog(policy limit.WindowPolicy) *SlidingLog {
	if err := policy.ValidateLog(); err != nil {
		panic(err.Error())
	}
	return &SlidingLog{newLimitRecords(l, limitLog, l.keysOf("log", keyname.OfWindow(policy)), logPolicy(policy), (*limit.Take).ValidateWindow)}
}

// NewSlidingCounter returns a sliding-window counter. It panics if the policy is not valid.
func (l *Limits) NewSlidingCounter(policy limit.WindowPolicy) *SlidingCounter {
	if err := policy.Validate(); err != nil {
		panic(err.Error())
	}
	return &SlidingCounter{newLimitRecords(l, limitCounter, l.keysOf("counter", keyname.OfWindow(policy)), counterPolicy(policy), (*limit.Take).ValidateWindow)}
}

func logPolicy(p limit.WindowPolicy) *limitRecordPolicy {
	return fixedPolicy(p.Description(), p.Window.Microseconds(), 0)
}

func counterPolicy(p limit.WindowPolicy) *limitRecordPolicy {
	return fixedPolicy(p.Description(), p.Window.Milliseconds(), 0)
}

// fixedPolicy returns a policy with the same numbers for all keys.
func fixedPolicy(description limit.Description, window, penalty int64) *limitRecordPolicy {
	return &limitRecordPolicy{
		RecordPolicy: batch.NewRecordPolicy(description),
		numbers:      func(*limit.Key) [5]int64 { return [5]int64{window, penalty} },
	}
}

// SetPolicy replaces the numbers of the log's policy in this process. The policy must have the
// log's name; an unnamed policy cannot change, because its numbers are the name of its records.
// Calls in progress use the old numbers.
func (w *SlidingLog) SetPolicy(policy limit.WindowPolicy) error {
	if err := policy.ValidateLog(); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return w.setPolicy(logPolicy(policy))
}

// SetPolicy replaces the numbers of the counter's policy in this process. The policy must have the
// counter's name; an unnamed policy cannot change, because its numbers are the name of its records.
// Calls in progress use the old numbers.
func (w *SlidingCounter) SetPolicy(policy limit.WindowPolicy) error {
	if err := policy.Validate(); err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	return w.setPolicy(counterPolicy(policy))
}

// Take takes tokens of key. After tokens have returned, other processes may deny the key for up to
// a second more.
func (w *SlidingLog) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	d, _, err := w.take(ctx, &key, &take)
	return d, err
}

// Take takes tokens of key. After tokens have returned, other processes may deny the key for up to
// a second more.
func (w *SlidingCounter) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	d, _, err := w.take(ctx, &key, &take)
	return d, err
}
