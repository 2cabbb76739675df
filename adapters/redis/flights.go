package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	maxFlights = 2  // round trips at the same time
	maxFlight  = 64 // calls in one
	flightTime = time.Second
)

// A call is one Consume on its way to Redis.
type call struct {
	key  string
	need int64
	wait int64 // units of it that may come later
	args []any // of its script, where that is not of the three

	sent, came time.Duration // when its flight began and ended, on the limiter's clock

	have  int64   // a limiter's reply
	state []int64 // others'
	err   error
	done  chan struct{} // closed when the call is over; nil if only its caller waits for it
}

// flights carries calls to Redis. What waits while others are under way leaves
// together, so that one caller never waits for company, and many need few round
// trips.
type flights struct {
	what  string // is called, for errors
	carry func(context.Context, []*call)

	// obedient says that the client stops at its context's deadline.
	obedient bool

	mu      sync.Mutex
	waiting []*call
	begun   []*flight // at most maxFlights that are not late
}

type flight struct{ began time.Time }

// do waits until c is decided or ctx is done. A call that has not left by then is
// never made; of one that has, nobody knows.
func (f *flights) do(ctx context.Context, c *call) error {
	if ctx.Err() != nil {
		return f.wrap(ctx.Err())
	}
	f.mu.Lock()
	fl := f.begin()
	if fl != nil && len(f.waiting) == 0 && f.stopsWith(ctx) {
		f.mu.Unlock()
		f.carry(ctx, []*call{c})
		f.land(fl)
		if by, bounded := ctx.Deadline(); c.err != nil && bounded && !time.Now().Before(by) {
			return f.wrap(context.DeadlineExceeded) // which the client calls an i/o timeout
		}
		return f.wrap(c.err)
	}
	c.done = make(chan struct{})
	f.waiting = append(f.waiting, c)
	f.mu.Unlock()
	if fl != nil {
		go f.next(fl)
	}
	select {
	case <-c.done:
		return f.wrap(c.err)
	case <-ctx.Done():
		f.giveUp(c)
		return f.wrap(ctx.Err())
	}
}

func (f *flights) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redis: %s: %w", f.what, err)
}

// stopsWith reports whether a caller may wait for the client itself, which spares two
// changes of goroutine: if it would wait for ever anyway, or the client stops when it must.
// What is cancelled before its deadline waits for that, so it must be near.
func (f *flights) stopsWith(ctx context.Context) bool {
	by, bounded := ctx.Deadline()
	return ctx.Done() == nil || f.obedient && bounded && time.Until(by) <= flightTime/10
}

// begin returns a flight, or nil if there are enough. It forgets one that is late: it
// will come back when its client gives up, which may be never. It must be called with the
// lock held.
func (f *flights) begin() *flight {
	if len(f.begun) == maxFlights {
		if time.Since(f.begun[0].began) < 2*flightTime {
			return nil
		}
		f.begun = f.begun[1:]
	}
	fl := &flight{time.Now()}
	f.begun = append(f.begun, fl)
	return fl
}

// land ends a flight that its caller has made, unless others have come meanwhile.
func (f *flights) land(fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) > 0 {
		go f.next(fl)
		return
	}
	if i := slices.Index(f.begun, fl); i >= 0 {
		f.begun = slices.Delete(f.begun, i, i+1)
	}
}

// next carries what waits until nothing does.
func (f *flights) next(fl *flight) {
	for {
		calls := f.board(fl)
		if len(calls) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), flightTime)
		f.carry(ctx, calls)
		cancel()
		for _, c := range calls {
			close(c.done)
		}
	}
}

// board returns the calls of the next round trip, or none if the flight ends.
func (f *flights) board(fl *flight) []*call {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(f.begun, fl)
	if i < 0 {
		return nil // forgotten
	}
	f.begun = slices.Delete(f.begun, i, i+1)
	if len(f.waiting) == 0 {
		return nil
	}
	n := min(len(f.waiting), maxFlight)
	calls := slices.Clone(f.waiting[:n])
	f.waiting = slices.Delete(f.waiting, 0, n)
	fl.began = time.Now()
	f.begun = append(f.begun, fl) // the latest is last
	return calls
}

func (f *flights) giveUp(c *call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i := slices.Index(f.waiting, c); i >= 0 {
		f.waiting = slices.Delete(f.waiting, i, i+1)
		close(c.done)
	}
}

// newFlights carries calls of what that have their script's arguments, each to its own
// key's node. The script answers with so many numbers.
func newFlights(what string, client goredis.UniversalClient, s *script, numbers int) *flights {
	carry := func(ctx context.Context, calls []*call) {
		args := make([][]any, len(calls))
		for i, c := range calls {
			args[i] = c.args
		}
		for i, reply := range s.run(ctx, client, args) {
			c := calls[i]
			c.state, c.err = reply.Int64Slice()
			if c.err == nil && len(c.state) != numbers {
				c.err = fmt.Errorf("the script has answered %d numbers of %d", len(c.state), numbers)
			}
		}
	}
	return &flights{what: what, carry: carry, obedient: obeysDeadlines(client)}
}

// obeysDeadlines reports whether a client was told to stop at its context's deadline.
func obeysDeadlines(client goredis.UniversalClient) bool {
	switch c := client.(type) {
	case *goredis.Client:
		return c.Options().ContextTimeoutEnabled
	case *goredis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	default:
		return false
	}
}
