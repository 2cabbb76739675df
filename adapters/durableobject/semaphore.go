package durableobject

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/lease"
	"github.com/penstock-go/penstock/limit"
)

// A Semaphore is a [limit.Semaphore] in Durable Objects, so that processes everywhere share its
// permits. Each permit is held by a lease, which this process renews until Release; the permits
// of a process that dies become free when their leases expire, within ten seconds, even if the
// clock of the object goes backwards. It is safe for concurrent use.
//
// Every renewal is a request and a written row, every three seconds for each permit in use; the
// renewals of one process share requests.
//
// An object whose storage is deleted, or whose clock jumps forward, forgets who holds a permit
// until the next renewal, a third of a lease later. Until then a key grants its permits a second
// time, so up to twice its permits may be in use; renewals are then counted above the limit, and
// nothing more is granted until enough permits are released.
type Semaphore struct {
	client  *Client
	prefix  string
	permits int64 // per key
	lease   time.Duration
	calls   *batch.Batcher[permitRequest, permitResponse]
}

var _ limit.Semaphore = (*Semaphore)(nil)

type permitRequest struct {
	key, holder string
	permits     int64
	lease       time.Duration
	purpose     purpose
}

type permitResponse struct {
	acquired bool
	inUse    int64
}

type permitCall = batch.Call[permitRequest, permitResponse]

// A purpose says what a call does to a permit.
type purpose int64

const (
	acquirePermit purpose = iota
	renewPermit
	releasePermit
)

// NewSemaphore returns a semaphore with that many permits per key, at least 1. Semaphores of the
// same name share permits. It panics if the client is nil, the name is empty or permits is less
// than 1. It does not connect to the Worker.
func NewSemaphore(client *Client, name string, permits int64) *Semaphore {
	switch {
	case client == nil:
		panic("durableobject: NewSemaphore needs a client")
	case name == "":
		panic("durableobject: NewSemaphore needs a name")
	case permits < 1:
		panic(fmt.Sprintf("durableobject: NewSemaphore with %d permits; it must be at least 1", permits))
	}
	s := &Semaphore{client: client, prefix: client.prefix + keyname.ASCII(name), permits: permits, lease: lease.Time}
	s.calls = batch.New("durableobject: semaphore", batch.LimiterTimeout, s.exec, true)
	return s
}

// Acquire takes a permit if one is free.
func (s *Semaphore) Acquire(ctx context.Context, key limit.Key) (limit.Permit, error) {
	h := &holder{semaphore: s, key: keyname.JoinASCII(s.prefix, keyname.Parts(&key)), name: rand.Text()}
	c, err := h.call(ctx, acquirePermit)
	switch {
	case err != nil:
		go lease.ReleaseAfter(c.Wait, h) // the object may have acquired it, or still may
		return limit.Permit{}, err
	case !c.Response.acquired:
		return limit.Permit{InUse: c.Response.inUse, Limit: s.permits}, nil
	}
	return limit.Permit{Release: lease.Start(h, s.lease), InUse: c.Response.inUse, Limit: s.permits}, nil
}

func (s *Semaphore) exec(ctx context.Context, calls []*permitCall) {
	responses, err := s.client.semaphore(ctx, calls)
	for i, c := range calls {
		switch {
		case err != nil:
			c.Err = err
		case responses[i] == nil:
			c.Err = errNotDecided
		default:
			c.Response = *responses[i]
		}
	}
}

// A holder has one permit.
type holder struct {
	semaphore *Semaphore
	key       string
	name      string
}

func (h *holder) call(ctx context.Context, p purpose) (*permitCall, error) {
	c := &permitCall{Request: permitRequest{h.key, h.name, h.semaphore.permits, h.semaphore.lease, p}}
	return c, h.semaphore.calls.Do(ctx, c)
}

// Renew implements [lease.Holder].
func (h *holder) Renew(ctx context.Context) (wait func()) {
	c, _ := h.call(ctx, renewPermit) // if it fails, the next renewal may not
	return c.Wait
}

// Release implements [lease.Holder].
func (h *holder) Release(ctx context.Context) {
	_, _ = h.call(ctx, releasePermit) // if it fails, the lease expires
}
