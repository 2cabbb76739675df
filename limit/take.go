package limit

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit/mode"
)

// A Take says what a call wants from a bucket. The zero Take is a cost of 0, which describes the
// bucket.
type Take struct {
	// Cost is the number of tokens that the call takes: all of them, or none if the bucket holds
	// less. A negative Cost is an error.
	Cost int64

	// Keep is the number of tokens that the call must leave to more important ones. The call is
	// denied unless the bucket holds Cost and Keep. RetryAfter is the time until it does, or [Never]
	// if their sum is above the capacity. Only Cost is taken. A negative Keep is an error.
	Keep int64

	// MaxWait lets the call take tokens that the bucket will hold within that time, in the order of
	// the calls. It must be at most an hour.
	//
	//   - If the Decision is allowed with a RetryAfter, the caller may proceed after that
	//     time. The tokens are taken immediately: later calls queue behind.
	//   - If it is denied, RetryAfter is the time until the same call can be allowed. Sliding
	//     windows and quotas deny a call that would need a window or a period after the next
	//     one, however long it may wait.
	//
	// A caller that gives up waiting undoes the call. That helps later calls, and none that already
	// wait.
	MaxWait time.Duration

	// Lease bounds how long the tokens stay taken if the Take is not settled, such as after a crash of
	// the caller: at its end they return, as by Undoing. It is for work whose cost is known only after
	// it: the Take reserves an estimate, and the mode Settling replaces it. See [Meter].
	//
	//   - It must be whole milliseconds, from 1 to those of 24 hours, with the mode Whole and
	//     Receipt, and without Keep and MaxWait.
	//   - A key has at most 1,000 of them that are not settled. A further Take is denied until
	//     the first one ends or is settled.
	//   - Reset and Block end the leases of their key, and return nothing more. A lease from before
	//     SetPolicy may return nothing at its end.
	//   - RetryAfter does not count on leases that end earlier.
	Lease time.Duration

	// Mode is what happens to Cost. If 0, it is taken whole or not at all.
	Mode mode.Mode

	// Receipt makes the Decision contain a receipt of what was taken.
	Receipt bool

	// Undo is, with the modes Undoing and Settling, the receipt of the Take to undo or to settle. If
	// nil, it is that of a Take that took nothing.
	Undo *Receipt
}

// Validate returns an error that says what is wrong with the Take and what would be right.
func (t Take) Validate() error {
	switch {
	case t.Cost < 0:
		return fmt.Errorf("cost is %d; it must not be negative", t.Cost)
	case t.Keep < 0:
		return fmt.Errorf("keep is %d; it must not be negative", t.Keep)
	case t.MaxWait < 0 || t.MaxWait > maxReserve:
		return fmt.Errorf("maxWait is %v; it must be from 0 to %v", t.MaxWait, maxReserve)
	case t.Keep > 0 && t.MaxWait > 0:
		return errors.New("Keep and MaxWait are set; set one of them")
	case t.Mode > mode.Looking && (t.Keep > 0 || t.MaxWait > 0):
		return errors.New("Keep or MaxWait is set; they need the mode Whole or Looking")
	case t.Mode > mode.Settling:
		return fmt.Errorf("mode is %d; it must be one of the modes from Whole to Settling", t.Mode)
	case t.Lease != 0:
		return t.validateLease()
	case t.Mode >= mode.Undoing:
		return t.validateUndo()
	default:
		return nil
	}
}

// Undone returns the receipt to undo or to settle, which is the zero one if Undo is nil. It is for
// adapters.
func (t *Take) Undone() Receipt {
	if t.Undo == nil {
		return Receipt{}
	}
	return *t.Undo
}

func (t Take) validateUndo() error {
	switch receipt := t.Undone(); {
	case receipt.Tokens < 0:
		return fmt.Errorf("the receipt is one of %d tokens; it must not be negative", receipt.Tokens)
	case t.Mode == mode.Settling && receipt.Lease == 0 && receipt.Tokens > 0:
		return errors.New("the receipt is not one of a Take with a Lease; undo it instead")
	case t.Mode == mode.Undoing && receipt.Lease != 0:
		return errors.New("the receipt is one of a Take with a Lease; settle it with a cost of 0 instead")
	default:
		return nil
	}
}

func (t Take) validateLease() error {
	switch {
	case t.Lease < time.Millisecond || t.Lease > MaxLease || t.Lease%time.Millisecond != 0:
		return fmt.Errorf("lease is %v; it must be a whole number of milliseconds, from 1 to those of %v", t.Lease, MaxLease)
	case t.Mode != mode.Whole || !t.Receipt || t.Keep > 0 || t.MaxWait > 0:
		return errors.New("Lease is set; it needs the mode Whole and Receipt, and neither Keep nor MaxWait")
	default:
		return nil
	}
}

// ValidateWindow is Validate for sliding windows. Keep, Lease and the mode Settling are
// errors.
func (t Take) ValidateWindow() error {
	if t.Keep > 0 {
		return errKeep
	}
	return t.ValidateWithoutLease()
}

// ValidateQuota is Validate for quotas. Keep is an error.
func (t Take) ValidateQuota() error {
	if t.Keep > 0 {
		return errKeep
	}
	return t.Validate()
}

var errKeep = errors.New("sliding windows and quotas cannot keep tokens; use a token bucket")

// ValidateCooldown is Validate for cooldowns. Keep, MaxWait, Lease and the modes Charging and
// Settling are errors.
func (t Take) ValidateCooldown() error {
	if t.Keep > 0 || t.MaxWait > 0 || t.Mode == mode.Charging {
		return errors.New("cooldowns cannot keep tokens, wait or charge a deficit; use a token bucket")
	}
	return t.ValidateWithoutLease()
}

// ValidateWithoutLease is Validate for limiters whose Takes have no Lease.
func (t Take) ValidateWithoutLease() error {
	if t.Lease != 0 || t.Mode == mode.Settling {
		return errors.New("the limiter has no leases; use a token bucket or a quota")
	}
	return t.Validate()
}

// ValidatePlain is Validate for limiters that can only do the Take of [Consume].
func (t Take) ValidatePlain() error {
	if t.Cost >= 0 && !t.IsPlain() {
		return errors.New("the limiter can only take a cost whole")
	}
	return t.Validate()
}

// IsPlain reports whether a Take is that of [Consume]: a cost of 0 or more, whole or not at all.
func (t *Take) IsPlain() bool {
	return t.Cost >= 0 && t.Mode == mode.Whole && t.Keep == 0 && t.MaxWait == 0 && !t.Receipt && t.Lease == 0
}

// MaxLease is the longest Lease of a [Take].
const MaxLease = 24 * time.Hour

// maxReserve is the longest MaxWait of a [Take]. Package adapter exports it.
const maxReserve = time.Hour

// Consume takes cost tokens from key's bucket, or none of them.
func Consume(ctx context.Context, l Limiter, key Key, cost int64) (Decision, error) {
	return l.Take(ctx, key, Take{Cost: cost})
}

// Inspect describes key's bucket, and takes nothing.
func Inspect(ctx context.Context, l Limiter, key Key) (Decision, error) {
	return l.Take(ctx, key, Take{Mode: mode.Looking})
}

// Reserve takes cost tokens from key's bucket if the bucket holds them, or will hold them within
// maxWait, or none of them. See [Take.MaxWait].
func Reserve(ctx context.Context, l Limiter, key Key, cost int64, maxWait time.Duration) (Decision, error) {
	return l.Take(ctx, key, Take{Cost: cost, MaxWait: maxWait})
}

// ConsumeKeeping is [Consume] for a call that must leave at least keep tokens in the bucket.
func ConsumeKeeping(ctx context.Context, l Limiter, key Key, cost, keep int64) (Decision, error) {
	return l.Take(ctx, key, Take{Cost: cost, Keep: keep})
}

// ConsumeUpTo takes as many tokens as key's bucket holds, but at most most of them, and returns
// how many. With a most of 0, it is [Consume] of 0.
func ConsumeUpTo(ctx context.Context, l Limiter, key Key, most int64) (granted int64, d Decision, err error) {
	d, err = l.Take(ctx, key, Take{Cost: most, Mode: mode.Partial})
	granted, d.Granted = d.Granted, 0
	return granted, d, err
}

// Charge takes cost tokens from key's bucket, even if the bucket holds less, such as for a call that another
// limiter has admitted. See [mode.Charging].
func Charge(ctx context.Context, l Limiter, key Key, cost int64) error {
	_, err := l.Take(ctx, key, Take{Cost: cost, Mode: mode.Charging})
	return err
}

// Refund returns tokens to key's bucket, such as after a handler that did not do the work that was
// charged. It may return tokens that have returned already, or those of another period; [Undo] does
// not.
func Refund(ctx context.Context, l Limiter, key Key, tokens int64) error {
	_, err := l.Take(ctx, key, Take{Cost: tokens, Mode: mode.Returning})
	return err
}

// Undo returns what a [Take] of key took, as if it had not been made. See [mode.Undoing]. A Take
// with a Lease that is settled or has ended returns nothing.
func (r Receipt) Undo(ctx context.Context, l Limiter, key Key) error {
	switch {
	case r == (Receipt{}):
		return nil
	case r.Lease != 0:
		return r.Settle(ctx, l, key, 0)
	}
	_, err := l.Take(ctx, key, Take{Mode: mode.Undoing, Undo: &r})
	return err
}

// Settle replaces what a [Take] of key with a Lease took by what its work has really used. See
// [mode.Settling].
func (r Receipt) Settle(ctx context.Context, l Limiter, key Key, used int64) error {
	_, err := l.Take(ctx, key, Take{Cost: used, Mode: mode.Settling, Undo: &r})
	return err
}
