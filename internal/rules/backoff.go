package rules

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/internal/random"
)

// The waits of a [Backoff] whose Min and Max are 0: between calls to a store that fails.
const (
	minStoreWait = 50 * time.Millisecond
	maxStoreWait = 2 * time.Second
)

// A Backoff is how long to wait between attempts: about Min after the first one, then twice as long
// each time, up to Max. Each wait is random, from half of that to all of it, so that many callers that
// have failed together do not try again together. The zero Backoff is for calls to a store. It is not
// safe for concurrent use.
type Backoff struct {
	Min, Max time.Duration // if 0, 50 milliseconds and 2 seconds

	wait time.Duration // the longest of the last attempt; 0 before the first one
}

// Next returns the wait after one more attempt that has failed.
func (b *Backoff) Next() time.Duration {
	shortest, longest := b.Min, b.Max
	if shortest == 0 {
		shortest = minStoreWait
	}
	if longest == 0 {
		longest = maxStoreWait
	}
	b.wait = min(max(2*b.wait, shortest), longest)
	return b.wait/2 + random.N(b.wait/2+1)
}

// Reset begins again with Min, after an attempt that has succeeded.
func (b *Backoff) Reset() { b.wait = 0 }

// Wait waits for Next. It returns early with the error of ctx if ctx ends first.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }
