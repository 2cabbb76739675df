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
	args []any         // of its script, where that is not key and need
	sent time.Duration // when its flight began, on the limiter's clock

	have  int64   // a limiter's reply
	state []int64 // others'
	err   error
	done  chan struct{} // closed when the others are set
}

// flights carries calls to Redis. What waits while others are under way leaves
// together, so that one caller never waits for company, and many need few round
// trips.
type flights struct {
	carry func(context.Context, []*call)

	mu      sync.Mutex
	waiting []*call
	begun   []*flight // at most maxFlights that are not late
}

type flight struct{ began time.Time }

// do waits until c is decided or ctx is done. A call that has not left by then is
// never made; of one that has, nobody knows.
func (f *flights) do(ctx context.Context, c *call) error {
	f.mu.Lock()
	f.waiting = append(f.waiting, c)
	if f.mayBegin() {
		fl := &flight{time.Now()}
		f.begun = append(f.begun, fl)
		go f.fly(fl)
	}
	f.mu.Unlock()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		f.giveUp(c)
		return fmt.Errorf("redis: limiter: %w", ctx.Err())
	}
}

// mayBegin forgets a flight that is late. It will come back when its client gives up,
// which may be never.
func (f *flights) mayBegin() bool {
	if len(f.begun) < maxFlights {
		return true
	}
	if time.Since(f.begun[0].began) < 2*flightTime {
		return false
	}
	f.begun = f.begun[1:]
	return true
}

// fly carries what waits until nothing does.
func (f *flights) fly(fl *flight) {
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
	}
}

// carrier carries calls that have their script's arguments, each to its own key's node.
// The script answers with so many numbers.
func carrier(client goredis.UniversalClient, s *script, numbers int) func(context.Context, []*call) {
	return func(ctx context.Context, calls []*call) {
		args := make([][]any, len(calls))
		for i, c := range calls {
			args[i] = c.args
		}
		for i, reply := range s.run(ctx, client, args) {
			c := calls[i]
			c.state, c.err = reply.Int64Slice()
			switch {
			case c.err != nil:
				c.err = fmt.Errorf("redis: %w", c.err)
			case len(c.state) != numbers:
				c.err = fmt.Errorf("redis: the script has answered %d numbers of %d", len(c.state), numbers)
			}
		}
	}
}
