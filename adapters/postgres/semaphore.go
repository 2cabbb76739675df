package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/lease"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/limit"
)

// A Semaphore is a [limit.Semaphore] in PostgreSQL, so that many processes share its permits. Each
// permit is held by a lease, which this process renews until Release; the permits of a process that
// dies become free when their leases expire, within ten seconds, even if the clock of the server
// goes backwards. A permit is a row. See [LimitStore] for what all limiters of this package have in
// common. A Semaphore is safe for concurrent use.
//
// After a crash or a failover of the server, or if its clock jumps forward, it may have forgotten
// permits until their next renewal, a third of a lease later. Until then a key grants them a second
// time, so up to twice its permits may be in use; renewals are then counted above the limit, and
// nothing more is granted until enough permits are released.
type Semaphore struct {
	limits  *LimitStore
	keys    limitKeys
	permits int64 // per key
	lease   time.Duration
}

var _ limit.Semaphore = (*Semaphore)(nil)

// NewSemaphore returns a semaphore with that many permits per key, at least 1. Semaphores of the
// same name share permits. It panics if the name is empty or permits is less than 1.
func (l *LimitStore) NewSemaphore(name string, permits int64) *Semaphore {
	switch {
	case name == "":
		panic("postgres: NewSemaphore needs a name")
	case permits < 1:
		panic(fmt.Sprintf("postgres: NewSemaphore with %d permits; it must be at least 1", permits))
	}
	return &Semaphore{limits: l, keys: l.keysOf("semaphore", name), permits: permits, lease: lease.Time}
}

// Acquire takes a permit if one is free.
func (s *Semaphore) Acquire(ctx context.Context, key limit.Key) (limit.Permit, error) {
	h := &permitHolder{semaphore: s, key: key, holder: 1 + random.N[int64](1<<62)}
	c, err := h.call(ctx, opTake)
	if err != nil {
		go lease.ReleaseAfter(c.Wait, h) // the statement may have acquired it, or still may
		return limit.Permit{}, err
	}
	acquired, inUse := c.Response.numbers[0] == 1, c.Response.numbers[1]
	if !acquired {
		return limit.Permit{InUse: inUse, Limit: s.permits}, nil
	}
	return limit.Permit{Release: lease.Start(h, s.lease), InUse: inUse, Limit: s.permits}, nil
}

// A permitHolder has one permit.
type permitHolder struct {
	semaphore *Semaphore
	key       limit.Key
	holder    int64
}

func (h *permitHolder) call(ctx context.Context, op int64) (*batch.Call[limitCall, limitReply], error) {
	s := h.semaphore
	return s.limits.do(ctx, s.keys.call(&h.key, limitArgs{limitSemaphore, op, s.permits, s.lease.Microseconds(), h.holder}))
}

// Renew implements [lease.Holder].
func (h *permitHolder) Renew(ctx context.Context) (wait func()) {
	c, _ := h.call(ctx, opRenew)
	return c.Wait
}

// Release implements [lease.Holder].
func (h *permitHolder) Release(ctx context.Context) { _, _ = h.call(ctx, opRelease) }
