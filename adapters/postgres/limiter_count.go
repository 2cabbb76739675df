package postgres

import (
	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/limit"
)

// A CountLimiter is a limiter that counts what keys have taken, by a policy of type P: a sliding window
// ([LimitStore.NewSlidingLog], [LimitStore.NewSlidingCounter]) or a quota ([LimitStore.NewQuota]). It is a
// [limit.Limiter], [adapter.Checker], [limit.Blocker], [adapter.Batcher], [adapter.Rememberer],
// [adapter.Describer] and [limit.PolicySetter]. SetPolicy affects this process only, and an unnamed
// policy cannot change, because its numbers name its records. A CountLimiter is safe for concurrent
// use.
type CountLimiter[P any] struct {
	*countLimiter[P]
	rows *limitRows
}

type countLimiter[P any] = batch.Changeable[P]

// NewSlidingLog returns a limiter that enforces a [limit.WindowPolicy] exactly, in PostgreSQL, so
// that many processes share it. Its decisions equal those of a sliding-window log in memory, on the
// clock of the server. A key that lacks tokens is denied without a round trip, for at most a
// second. See [LimitStore] for what all limiters of this package have in common.
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
// and charges, and every call that takes tokens writes all of it: use [LimitStore.NewSlidingCounter] for a Max
// of several hundred.
//
// NewSlidingLog panics if the policy is not valid for a log ([limit.WindowPolicy.ValidateLog]).
func (l *LimitStore) NewSlidingLog(policy limit.WindowPolicy) *CountLimiter[limit.WindowPolicy] {
	rows := l.rowsOf(limitLog, "log", keyname.OfWindow(policy))
	return &CountLimiter[limit.WindowPolicy]{batch.NewLog("postgres", rows, policy), rows}
}

// NewSlidingCounter returns a limiter that enforces a [limit.WindowPolicy] with two counts per
// key, in PostgreSQL, so that many processes share it. Its decisions equal those of a
// sliding-window counter in memory, which describes them, on the clock of the server. A key that
// lacks tokens is denied without a round trip, for at most a second. See [LimitStore] for what all
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
// at most Max of them.
//
// NewSlidingCounter panics if the policy is not valid.
func (l *LimitStore) NewSlidingCounter(policy limit.WindowPolicy) *CountLimiter[limit.WindowPolicy] {
	rows := l.rowsOf(limitCounter, "counter", keyname.OfWindow(policy))
	return &CountLimiter[limit.WindowPolicy]{batch.NewCounter("postgres", rows, policy), rows}
}

// NewQuota returns a limiter that enforces a [limit.QuotaPolicy] in PostgreSQL, so that many
// processes share it. Its decisions equal those of a quota in memory, on the clock of the server
// and the calendar of this process: it is an error if their clocks differ by more than a period. A
// key that has used its quota is denied without a round trip, for at most a second. See [LimitStore]
// for what all limiters of this package have in common, and [WithTx] for a quota that is charged if
// and only if a transaction commits.
//
// Processes whose policies have the same name share records, even if their numbers differ, as
// during a rolling deployment or after SetPolicy. A different Max is compared with the same count.
// If periods or locations differ, what was taken counts until the last of the periods in which it
// was taken has ended. So from the first to the last token of a key that a process grants in one of
// its periods, all processes grant at most the Max of that process. In any interval, they grant at
// most the largest Max, and as many again at each start of a period of one of the policies.
//
// If the server's clock goes back to the period before the one in which a key was last used, the
// latter continues until its end: no quota is granted twice, and no key is denied for longer. If
// the clock goes back further, what the key has used counts in the period that the clock went to.
// If the clock goes forward to another period, its quota is granted.
//
// The end of a lease returns nothing to a process whose Max or period differs from that of the
// process that took it.
//
// NewQuota panics if the policy is not valid.
func (l *LimitStore) NewQuota(policy limit.QuotaPolicy) *CountLimiter[limit.QuotaPolicy] {
	rows := l.rowsOf(limitQuota, "quota", keyname.OfQuota(policy))
	return &CountLimiter[limit.QuotaPolicy]{batch.NewQuota("postgres", rows, policy), rows}
}
