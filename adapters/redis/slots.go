package redis

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/middleware/ratelimit"
)

// Slots are [ratelimit.Slots] in Redis. A place is held by a lease, which the process renews
// for as long as the handler runs; the places of a process that dies come back when
// their leases end. A key's places are a sorted set under
// penstock:slots:<name>:<part>:<part>...
type Slots struct {
	client  goredis.UniversalClient
	prefix  string
	most    int64
	lease   time.Duration
	flights *flights
}

var _ ratelimit.Slots = (*Slots)(nil)

// leaseTime is how long a dead process keeps its places.
const leaseTime = 10 * time.Second

// NewSlots returns slots with so many places for each key, at least 1. Those of the same
// name share them. It panics if the client is nil or an argument makes no sense. It sends
// nothing yet.
func NewSlots(client goredis.UniversalClient, slots string, most int64) *Slots {
	switch {
	case client == nil:
		panic("redis: NewSlots needs a client")
	case slots == "":
		panic("redis: NewSlots needs a name")
	case most < 1:
		panic(fmt.Sprintf("redis: NewSlots of %d; it must be at least 1", most))
	}
	s := &Slots{client: client, prefix: name("penstock:slots", []string{slots}), most: most, lease: leaseTime}
	s.flights = newFlights("slots", client, newScript(acquireLua), 2)
	return s
}

// Acquire takes a place, if one is free.
func (s *Slots) Acquire(ctx context.Context, key ratelimit.Key) (ratelimit.Slot, error) {
	held := &lease{slots: s, key: name(s.prefix, parts(&key)), holder: rand.Text()}
	c, got, taken, err := held.renew(ctx)
	switch {
	case err != nil:
		go held.releaseAfter(c) // it may have been taken all the same, or be taken yet
		return ratelimit.Slot{}, err
	case !got:
		return ratelimit.Slot{Taken: taken, Limit: s.most}, nil
	}
	held.mu.Lock()
	held.timer = time.AfterFunc(s.lease/3, held.keep)
	held.mu.Unlock()
	return ratelimit.Slot{Release: sync.OnceFunc(held.end), Taken: taken, Limit: s.most}, nil
}

// A lease is a place that is taken.
type lease struct {
	slots  *Slots
	key    string
	holder string

	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

const slotTime = time.Second // for what nobody waits for

func (l *lease) renew(ctx context.Context) (c *call, got bool, taken int64, err error) {
	c = &call{args: []any{1, l.key, l.holder, l.slots.most, l.slots.lease.Milliseconds()}}
	if err := l.slots.flights.do(ctx, c); err != nil {
		return c, false, 0, err
	}
	return c, c.state[0] == 1, c.state[1], nil
}

// keep renews the lease until the place is released. If Redis is away, it tries again:
// the place may be taken by another meanwhile.
func (l *lease) keep() {
	ctx, cancel := context.WithTimeout(context.Background(), slotTime)
	defer cancel()
	c, _, _, _ := l.renew(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		go l.releaseAfter(c) // which may have undone the release
		return
	}
	l.timer.Reset(l.slots.lease / 3)
}

// end gives the place back without waiting for Redis.
func (l *lease) end() {
	l.mu.Lock()
	l.ended = true
	l.timer.Stop()
	l.mu.Unlock()
	go l.release()
}

// releaseAfter waits for a renewal that somebody has given up.
func (l *lease) releaseAfter(c *call) {
	if c.done != nil {
		<-c.done
	}
	l.release()
}

func (l *lease) release() {
	ctx, cancel := context.WithTimeout(context.Background(), slotTime)
	defer cancel()
	_ = l.slots.client.ZRem(ctx, l.key, l.holder).Err() // if it fails, the lease ends
}
