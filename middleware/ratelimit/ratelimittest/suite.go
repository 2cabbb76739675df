package ratelimittest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// A Harness makes limiters whose clock a case can move.
type Harness struct {
	// New returns a limiter. Limiters with policies of different names are apart,
	// even if they stand on one store; a case uses each name once.
	New func(ratelimit.Policy) ratelimit.Limiter

	// Sleep moves the limiters' clock by exactly d. Between two calls of it the
	// clock stands still.
	Sleep func(d time.Duration)

	// StepBack moves the clock back by d, as an operator's hand does. Only
	// [SurvivesStepsBack] needs it.
	StepBack func(d time.Duration)
}

// A Case is one rule of the contract.
type Case struct {
	Name  string
	Rule  string
	Check func(Harness) error // says how a limiter broke the rule
}

// Run fails the test if the limiter breaks the rule.
func (c Case) Run(t *testing.T, h Harness) {
	t.Helper()
	if err := c.Check(h); err != nil {
		t.Errorf("%v\nrule: %s", err, c.Rule)
	}
}

// Cases returns the contract. The cases of [ratelimit.Adjustable], [ratelimit.Blocker] and
// [ratelimit.Reserver] pass if a limiter is not that.
func Cases() []Case {
	return []Case{
		{"unseen keys are full", "A key that was not seen before has a full bucket.", unseenKeysAreFull},
		{"tokens come back one by one", "Tokens come back one by one, every Per/Refill, up to the capacity.", tokensComeBack},
		{"fractions are kept", "No fraction of a token is ever lost or minted, however often one asks.", fractionsAreKept},
		{"decisions are exact", "What a Decision says equals the token bucket of rational numbers.", decisionsAreExact},
		{"concurrent calls", "Concurrent calls for one key never take more tokens than it holds.", concurrentCalls},
		{"a denial takes nothing", "A denied call takes nothing and delays nobody.", denialTakesNothing},
		{"all or none", "A cost is taken whole or not at all.", allOrNone},
		{"keys are apart", "Keys do not influence each other, whatever their parts hold.", keysAreApart},
		{"policies are apart", "Limiters whose policies have different names do not influence each other.", policiesAreApart},
		{"cost of nothing", "A cost of 0 is allowed and takes nothing; the Decision tells the state of the bucket.", costOfNothing},
		{"negative cost", "A negative cost is an error, and the Decision is then the zero one.", negativeCost},
		{"cost above the capacity", "A cost above the capacity is denied with RetryAfter Never, and takes nothing.", costAboveCapacity},
		{"waiting is enough", "Whoever waits exactly RetryAfter is admitted; a millisecond less is never enough.", waitingIsEnough},
		{"resetting is exact", "After ResetAfter the bucket is full; a millisecond before it is not.", resettingIsExact},
		{"a refund comes back", "Refund gives tokens back, of which no fraction is lost or minted.", refundComesBack},
		{"a refund stops at full", "A bucket never holds more than its capacity, whatever is refunded.", refundStopsAtFull},
		{"refunds of nothing", "A refund of 0 does nothing, and a negative one is an error.", refundsOfNothing},
		{"reset fills", "Reset fills the bucket of its key and no other.", resetFills},
		{"a block lasts", "Until a block ends, every cost is denied with the time that is left; then the bucket is full.", blockLasts},
		{"a block can be changed", "A refund does not end a block; another block replaces it, and a reset ends it.", blockCanBeChanged},
		{"blocks of nothing", "A block is from a microsecond to 365 days; another one is an error.", blocksOfNothing},
		{"a reservation waits", "A reservation takes tokens that are there within maxWait, and says when.", reservationWaits},
		{"reservations are in order", "Whoever comes later stands behind, reserving or not.", reservationsAreInOrder},
		{"a reservation is refused", "What is not there within maxWait is denied, takes nothing, and says when to try again.", reservationIsRefused},
		{"reservations are exact", "What a reservation says equals the token bucket of rational numbers.", reservationsAreExact},
		{"a reservation is given back", "A refund of a reservation helps who comes later.", reservationIsGivenBack},
		{"reservations of nothing", "A negative cost or maxWait, or one above an hour, is an error.", reservationsOfNothing},
		{"the capacity is the most", "A bucket never holds more than its capacity, however long it is left alone.", capacityIsTheMost},
	}
}

// A bench is a limiter under test.
type bench struct {
	ratelimit.Limiter
}

func key(name string) ratelimit.Key { return ratelimit.Key{"user", "", name} }

// want consumes and compares.
func (b bench) want(k ratelimit.Key, cost int64, want ratelimit.Decision) error {
	got, err := b.Consume(context.Background(), k, cost)
	if err != nil {
		return fmt.Errorf("Consume(%q, %d): %w", k, cost, err)
	}
	if got != want {
		return fmt.Errorf("Consume(%q, %d) is %+v, want %+v", k, cost, got, want)
	}
	return nil
}

// allowed consumes and wants to be allowed, or denied.
func (b bench) allowed(k ratelimit.Key, cost int64, want bool) (ratelimit.Decision, error) {
	got, err := b.Consume(context.Background(), k, cost)
	if err == nil && got.Allowed != want {
		err = fmt.Errorf("Consume(%q, %d) is %+v, want Allowed to be %v", k, cost, got, want)
	}
	return got, err
}
