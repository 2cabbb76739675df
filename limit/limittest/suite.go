package limittest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A Harness creates limiters whose clock a case can move.
type Harness struct {
	// New returns a limiter. Limiters whose policies have different names must not influence
	// each other, even if they share a store. A case uses each name once, unless Shared is set.
	New func(limit.Policy) limit.Limiter

	// Shared says that limiters of one name share their buckets, as processes with one store
	// do. Cases may then call New several times with one name and different numbers.
	// Otherwise, policies change only by [limit.PolicySetter].
	Shared bool

	// Sleep moves the limiters' clock forward by exactly d. Between two calls of Sleep, the
	// clock must not move.
	Sleep func(d time.Duration)

	// Rewind moves the clock backwards by d, as an administrator might. Only
	// [ClockGoesBackwards] needs it; it may be nil otherwise.
	Rewind func(d time.Duration)
}

// A Case is one rule of the contract.
type Case struct {
	Name  string
	Rule  string
	Check func(Harness) error // returns how a limiter broke the rule
}

// Run fails the test if the limiter breaks the rule.
func (c Case) Run(t *testing.T, h Harness) {
	t.Helper()
	if err := c.Check(h); err != nil {
		t.Errorf("%v\nrule: %s", err, c.Rule)
	}
}

// Cases returns the rules of the contract. The rules of Takes that a limiter cannot do, and of
// interfaces that it does not implement, pass.
func Cases() []Case {
	return []Case{
		{"new keys are full", "The bucket of a key that was not used before is full.", newKeysAreFull},
		{"tokens return one by one", "Tokens return one by one, every Per/Refill, up to the capacity.", tokensReturn},
		{"fractions are kept", "No fraction of a token is ever lost or created, at any frequency of calls.", fractionsAreKept},
		{"decisions are exact", "A Decision equals that of the token bucket of rational numbers.", decisionsAreExact},
		{"concurrent calls", "Concurrent calls for one key never take more tokens than its bucket holds.", concurrentCalls},
		{"a denial takes nothing", "A denied call takes nothing and delays no other call.", denialTakesNothing},
		{"all or none", "A cost is taken whole or not at all.", allOrNone},
		{"keys are separate", "Keys do not influence each other, whatever their parts contain.", keysAreSeparate},
		{"policies are separate", "Limiters whose policies have different names do not influence each other.", policiesAreSeparate},
		{"cost of 0", "A cost of 0 is allowed and takes nothing; the Decision describes the bucket.", zeroCost},
		{"negative cost", "A negative cost is an error, and the Decision is then the zero one.", negativeCost},
		{"cost above the capacity", "A cost above the capacity is denied with RetryAfter Never, and takes nothing.", costAboveCapacity},
		{"RetryAfter is exact", "The same call is allowed after exactly RetryAfter; a millisecond earlier it is never allowed.", retryAfterIsExact},
		{"ResetAfter is exact", "After ResetAfter the bucket is full; a millisecond earlier it is not.", resetAfterIsExact},
		{"refund returns tokens", "Refund returns tokens; no fraction of a token is lost or created.", refundReturnsTokens},
		{"refund stops at capacity", "A bucket never holds more than its capacity, whatever is refunded.", refundStopsAtCapacity},
		{"refund of 0 or less", "A refund of 0 does nothing, and a negative one is an error.", refundOfNothing},
		{"undo returns what was taken", "After Undo, the bucket is as if the Take had not been made, whatever was taken since.", undoReturnsWhatWasTaken},
		{"undo deducts lost refill only", "Undo deducts the refill that was lost because the bucket was full, once for all Takes that overlap.", undoDeductsLostRefillOnly},
		{"undo of what was refunded", "Undo returns nothing of a Take whose tokens a refund has returned, although others were taken since.", undoOfRefunded},
		{"undo of a reservation", "After Undo of a reservation, the bucket is as if it had not been made, before and after its tokens could be spent.", undoOfReservation},
		{"undo after a change", "A receipt from before a change of the policy returns nothing; the same numbers are no change.", undoAfterChange},
		{"undo of a part", "Undo of a partial Take returns the part.", undoOfPart},
		{"no receipt of nothing", "A denied Take, one of a cost of 0, and one that only looks have no receipt.", noReceiptOfNothing},
		{"a look takes nothing", "A look decides as Consume, ConsumeKeeping and Reserve do, and takes nothing.", lookTakesNothing},
		{"invalid takes", "A Take with Keep and MaxWait, or with one of them and a mode that does not permit it, is an error.", invalidTakes},
		{"reset fills", "Reset fills the bucket of its key and no other.", resetFills},
		{"block denies", "During a block, every cost is denied with the remaining time; afterwards the bucket is full.", blockDenies},
		{"block can be changed", "A refund does not end a block; another block replaces it, and a reset ends it.", blockCanBeChanged},
		{"block of invalid duration", "A block lasts from 1 microsecond to 365 days; any other duration is an error.", blockOfInvalidDuration},
		{"reservation waits", "A reservation takes tokens that the bucket will hold within maxWait, and returns the wait.", reservationWaits},
		{"reservations are ordered", "Later calls queue behind a reservation, whether they reserve or not.", reservationsAreOrdered},
		{"reservation is denied", "A cost that the bucket will not hold within maxWait is denied, takes nothing, and has a RetryAfter.", reservationIsDenied},
		{"reservations are exact", "The Decision of a reservation equals that of the token bucket of rational numbers.", reservationsAreExact},
		{"reservation is refunded", "A refund of a reservation helps later calls.", reservationIsRefunded},
		{"invalid reservations", "A negative cost or maxWait, or a maxWait above an hour, is an error.", invalidReservations},
		{"keep leaves tokens", "ConsumeKeeping is denied unless the bucket holds cost and keep; it takes only cost.", keepLeavesTokens},
		{"keep of 0", "With a keep of 0, ConsumeKeeping is Consume.", keepNothing},
		{"keep above the capacity", "A cost and keep above the capacity are denied with RetryAfter Never; negative ones are errors.", keepAboveCapacity},
		{"a part is granted", "ConsumeUpTo takes as many tokens as the bucket holds, but at most most; without any it is denied.", partIsGranted},
		{"negative part", "A negative most is an error and takes nothing.", negativePart},
		{"charge takes a deficit", "Charge takes tokens that the bucket does not hold, more than its capacity too; the deficit returns like all tokens.", chargeTakesDeficit},
		{"the largest deficit", "A charge of any size leaves a deficit that is at most MaxDeficit.", chargeOfEverything},
		{"charge of nothing", "A charge of 0 or of a blocked key does nothing; a negative one is an error.", chargeOfNothing},
		{"a lease ends", "At the end of its lease, a bucket is as if the Take had not been made.", leaseEnds},
		{"leases end in order", "Leases end at their time and in its order, even without a call of the limiter.", leasesEndInOrder},
		{"settling returns the rest", "A settlement of less than the Take returns the difference, as if the Take had been one of the lesser cost.", settleReturnsTheRest},
		{"settling of a busy meter", "A settlement of less deducts only refill that was lost because the bucket was full, once for all leases.", settleOfBusyMeter},
		{"settling takes the excess", "A settlement of more than the Take takes the difference, as a deficit of any size.", settleTakesTheExcess},
		{"settling after the end", "A settlement after the end of its lease, or after a reset, charges all that was used; one during a block nothing.", settleAfterTheEnd},
		{"settling twice", "Settling a lease again does nothing until its end.", settleTwice},
		{"leases are bounded", "A key has at most MaxLeases leases; a further one is denied until the first ends.", leasesAreBounded},
		{"settled leases leave room", "Only leases that are not settled count; the last MaxLeases settled ones are known until their ends.", settledLeasesLeaveRoom},
		{"leases and changes", "A lease from before a change of the policy returns nothing; a settlement of more is charged.", leaseAfterChange},
		{"invalid leases", "A Lease needs whole milliseconds, the mode Whole and Receipt; a settlement needs the receipt of one.", invalidLeases},
		{"joint leases", "Joint limiters have a lease each or none, and are settled together.", jointLeases},
		{"joint requests", "Requests with different keys are charged all or none; a denial has the longest RetryAfter.", jointRequests},
		{"joint cost of 0", "In a joint call, a cost of 0 is allowed whatever its bucket lacks, and the others are charged.", jointCostOfNothing},
		{"concurrent joint requests", "Joint requests in opposite orders wait for no other forever, and take exactly what they are granted.", jointCallsConcurrently},
		{"decisions of a batch", "A batch returns for each request the Decision that its limiter would make alone.", batchDecisions},
		{"a change creates nothing", "After a change of the policy, a bucket is missing as many tokens as before.", changeCreatesNothing},
		{"a change keeps RetryAfter exact", "After a change of the policy, a call that is denied is allowed after exactly RetryAfter.", changeKeepsRetryAfter},
		{"an invalid change is rejected", "A change to a policy that is not valid or has another name is an error and changes nothing.", changeIsRejected},
		{"a change keeps blocks", "A block lasts as long as before when the policy changes.", changeKeepsBlocks},
		{"a change keeps deficits", "A bucket that has reservations is missing as many tokens as before when the policy changes.", changeKeepsDeficits},
		{"concurrent changes", "Changes of the policy during calls create and lose no tokens.", changesConcurrently},
		{"capacity bounds the bucket", "A bucket never holds more than its capacity, however long it is not used.", capacityBoundsBucket},
	}
}

// A bench is a limiter under test.
type bench struct {
	limit.Limiter
}

func key(name string) limit.Key { return limit.Key{"user", "", name} }

func (b bench) want(k limit.Key, cost int64, want limit.Decision) error {
	got, err := limit.Consume(context.Background(), b, k, cost)
	if err != nil {
		return fmt.Errorf("Consume(%q, %d): %w", k, cost, err)
	}
	got.Policy = "" // which only joint limiters set
	if got != want {
		return fmt.Errorf("Consume(%q, %d) is %+v, want %+v", k, cost, got, want)
	}
	return nil
}

// allowed consumes and compares Decision.Allowed.
func (b bench) allowed(k limit.Key, cost int64, want bool) (limit.Decision, error) {
	got, err := limit.Consume(context.Background(), b, k, cost)
	if err == nil && got.Allowed != want {
		err = fmt.Errorf("Consume(%q, %d) is %+v, want Allowed to be %v", k, cost, got, want)
	}
	return got, err
}
