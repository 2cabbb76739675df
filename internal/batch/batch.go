package batch

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
)

const (
	maxRoundTrips = 2  // at the same time
	maxCalls      = 64 // of one round trip
)

// Bounds of a round trip that serves several callers: a limiter must decide soon, and histories are read again
// if they are not read in time.
const (
	LimiterTimeout = time.Second
	HistoryTimeout = 5 * time.Second
)

// A Call is one request to the store.
type Call[Req, Resp any] struct {
	Request Req

	Response Resp  // set by the exec function
	Err      error // set by the exec function

	done chan struct{}   // closed when the call is over; nil if its own caller executes it
	ctx  context.Context //nolint:containedctx // of Do, for its values
}

// Wait returns when the call is over, even if Do has returned earlier. It must be called after
// Do, and returns immediately if Do never sent the call.
func (c *Call[Req, Resp]) Wait() {
	if c.done != nil {
		<-c.done
	}
}

// A Batcher executes calls in few round trips: calls that wait while others are in flight share
// the next one. A single caller never waits for others. It is safe for concurrent use.
type Batcher[Req, Resp any] struct {
	name           string
	timeout        time.Duration // of a round trip that serves several callers
	exec           func(context.Context, []*Call[Req, Resp])
	honorsDeadline bool

	mu      sync.Mutex
	waiting []*Call[Req, Resp]
	running []*roundTrip // oldest first; at most maxRoundTrips that are not overdue
}

type roundTrip struct{ start time.Time }

// New returns a batcher. exec sends calls in one round trip and sets their Response or Err;
// errors of Do begin with name. timeout bounds a round trip that serves several callers.
// honorsDeadline says that exec returns soon after the deadline of its context.
func New[Req, Resp any](name string, timeout time.Duration, exec func(context.Context, []*Call[Req, Resp]), honorsDeadline bool) *Batcher[Req, Resp] {
	return &Batcher[Req, Resp]{name: name, timeout: timeout, exec: exec, honorsDeadline: honorsDeadline}
}

// Do waits until c is over or ctx is done. If ctx is done first, a call that was not sent yet
// will never be sent; the outcome of a call that was sent is unknown.
func (b *Batcher[Req, Resp]) Do(ctx context.Context, c *Call[Req, Resp]) error {
	if ctx.Err() != nil {
		return b.wrap(ctx.Err())
	}
	b.mu.Lock()
	rt := b.beginLocked()
	if rt != nil && len(b.waiting) == 0 && b.execReturnsWith(ctx) {
		b.mu.Unlock()
		b.exec(ctx, []*Call[Req, Resp]{c})
		b.finish(rt)
		if deadline, ok := ctx.Deadline(); c.Err != nil && ok && !time.Now().Before(deadline) {
			return b.wrap(context.DeadlineExceeded) // the client returns an i/o timeout
		}
		return b.wrap(c.Err)
	}
	c.done, c.ctx = make(chan struct{}), ctx
	b.waiting = append(b.waiting, c)
	b.mu.Unlock()
	if rt != nil {
		go b.run(rt)
	}
	select {
	case <-c.done:
		return b.wrap(c.Err)
	case <-ctx.Done():
		b.abandon(c)
		return b.wrap(ctx.Err())
	}
}

func (b *Batcher[Req, Resp]) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", b.name, err)
}

// execReturnsWith reports whether a caller may run exec itself, which saves two switches of
// goroutines: its context never ends, or exec returns at the context's deadline. A cancellation
// before the deadline would not interrupt exec, so the deadline must be near.
func (b *Batcher[Req, Resp]) execReturnsWith(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Done() == nil || b.honorsDeadline && ok && time.Until(deadline) <= b.timeout/10
}

// beginLocked returns a round trip, or nil if there are enough. It forgets one that is overdue:
// exec may never return from it.
func (b *Batcher[Req, Resp]) beginLocked() *roundTrip {
	if len(b.running) == maxRoundTrips {
		if time.Since(b.running[0].start) < 2*b.timeout {
			return nil
		}
		b.running = b.running[1:]
	}
	rt := &roundTrip{time.Now()}
	b.running = append(b.running, rt)
	return rt
}

// finish ends a round trip that a caller has executed. If calls wait, a new goroutine continues
// with them.
func (b *Batcher[Req, Resp]) finish(rt *roundTrip) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 {
		go b.run(rt)
		return
	}
	if i := slices.Index(b.running, rt); i >= 0 {
		b.running = slices.Delete(b.running, i, i+1)
	}
}

// run executes batches until no call waits. It owns rt. The context of a batch has the values of that of its
// first call: the round trip is in the trace of this call.
func (b *Batcher[Req, Resp]) run(rt *roundTrip) {
	for {
		// Callers that were woken together, such as those of the last batch, share the next one. Without this,
		// the first of them has a round trip of its own, and the others wait for it.
		runtime.Gosched()
		calls := b.nextBatch(rt)
		if len(calls) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(calls[0].ctx), b.timeout)
		b.exec(ctx, calls)
		cancel()
		for _, c := range calls {
			close(c.done)
		}
	}
}

// IsOfContext reports whether an error of Do is that of its context. The deadline of a round trip or of a dial has
// the same error.
func IsOfContext(ctx context.Context, err error) bool {
	deadline, ok := ctx.Deadline()
	isOver := ctx.Err() != nil || ok && !time.Now().Before(deadline)
	return isOver && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

// nextBatch returns the calls of the next round trip. It returns none, and ends rt, if no call
// waits or begin has forgotten rt.
func (b *Batcher[Req, Resp]) nextBatch(rt *roundTrip) []*Call[Req, Resp] {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.running, rt)
	if i < 0 {
		return nil
	}
	b.running = slices.Delete(b.running, i, i+1)
	if len(b.waiting) == 0 {
		return nil
	}
	n := min(len(b.waiting), maxCalls)
	calls := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	rt.start = time.Now()
	b.running = append(b.running, rt) // keeps the oldest first
	return calls
}

// abandon removes a call that was not sent yet.
func (b *Batcher[Req, Resp]) abandon(c *Call[Req, Resp]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(b.waiting, c); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		close(c.done)
	}
}
