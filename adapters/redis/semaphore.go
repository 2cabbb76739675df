package redis

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/lease"
	"github.com/penstock-go/penstock/internal/redisclient"
	"github.com/penstock-go/penstock/limit"
)

// A Semaphore is a [limit.Semaphore] in Redis, so that many processes share its permits. Each
// permit is held by a lease, which this process renews until Release; the permits of a process
// that dies become free when their leases expire, within ten seconds, even if the clock of the
// server goes backwards. A key's permits are a sorted set under
// penstock:semaphore:<name>:<part>:<part>... It is safe for concurrent use.
//
// # Loss of data
//
// A Redis that restarts without its data, or whose clock jumps forward, forgets who holds a
// permit until the next renewal, a third of a lease later. Until then a key grants its permits a
// second time, so up to twice its permits may be in use; renewals are then counted above the
// limit, and nothing more is granted until enough permits are released. A marker key that delays
// new permits after a restart would have to be in the slot of each key, where its absence also
// means that the key is used for the first time, so every first call of a user would be denied
// for seconds. A Redis with an append-only file forgets at most the last second.
type Semaphore struct {
	client  goredis.UniversalClient
	prefix  string
	permits int64 // per key
	lease   time.Duration
	calls   *redisclient.Batcher
}

var _ limit.Semaphore = (*Semaphore)(nil)

// NewSemaphore returns a semaphore with that many permits per key, at least 1. Semaphores of the
// same name share permits. It panics if the client is nil, the name is empty or permits is less
// than 1. It does not connect to Redis.
func NewSemaphore(client goredis.UniversalClient, name string, permits int64) *Semaphore {
	switch {
	case client == nil:
		panic("redis: NewSemaphore needs a client")
	case name == "":
		panic("redis: NewSemaphore needs a name")
	case permits < 1:
		panic(fmt.Sprintf("redis: NewSemaphore with %d permits; it must be at least 1", permits))
	}
	client, prefix, _ := redisclient.Unwrap(client)
	s := &Semaphore{client: client, prefix: keyname.Join(prefix+":semaphore", []string{name}), permits: permits, lease: lease.Time}
	s.calls = redisclient.NewBatcher("redis: semaphore", client, redisclient.NewScript(semaphoreAcquireLua), 2)
	return s
}

// Acquire takes a permit if one is free.
func (s *Semaphore) Acquire(ctx context.Context, key limit.Key) (limit.Permit, error) {
	h := &holder{semaphore: s, key: keyname.Join(s.prefix, keyname.Parts(&key)), name: rand.Text()}
	c, acquired, inUse, err := h.call(ctx, acquirePermit)
	switch {
	case err != nil:
		go lease.ReleaseAfter(c.Wait, h) // the script may have acquired it, or still may
		return limit.Permit{}, err
	case !acquired:
		return limit.Permit{InUse: inUse, Limit: s.permits}, nil
	}
	return limit.Permit{Release: lease.Start(h, s.lease), InUse: inUse, Limit: s.permits}, nil
}

// A holder has one permit.
type holder struct {
	semaphore *Semaphore
	key       string
	name      string
}

// The last argument of the script.
const (
	acquirePermit = 0
	renewLease    = 1
)

func (h *holder) call(ctx context.Context, purpose int) (c *redisclient.Call, acquired bool, inUse int64, err error) {
	c = &redisclient.Call{Request: []any{1, h.key, h.name, h.semaphore.permits, h.semaphore.lease.Milliseconds(), purpose}}
	if err := h.semaphore.calls.Do(ctx, c); err != nil {
		return c, false, 0, err
	}
	return c, c.Response[0] == 1, c.Response[1], nil
}

// Renew implements [lease.Holder].
func (h *holder) Renew(ctx context.Context) (wait func()) {
	c, _, _, _ := h.call(ctx, renewLease)
	return c.Wait
}

// Release implements [lease.Holder].
func (h *holder) Release(ctx context.Context) {
	_ = h.semaphore.client.ZRem(ctx, h.key, h.name).Err()
}
