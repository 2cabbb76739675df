package run

import (
	"context"
	"encoding/json"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/internal/runs"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// reserve takes what a run needs to begin, or nothing, and returns the reservation.
func reserve[Item router.Message](ctx context.Context, permit *userPermit, b *budget[Item]) (json.RawMessage, error) {
	if err := permit.acquire(ctx); err != nil {
		return nil, err
	}
	r := reservation{User: permit.user}
	if b != nil {
		if err := b.reserve(ctx, permit.user); err != nil {
			permit.release()
			if e, ok := errors.AsType[*runs.ExhaustedError](err); ok {
				err = e.Public
			}
			return nil, err
		}
		r = b.taken
	}
	return jsonv2.Marshal(r)
}

// A userPermit bounds the active runs of a user.
type userPermit struct {
	semaphore limit.Semaphore // nil if there is no bound
	user      limit.Key
	free      func() // nil if nothing is acquired
}

func (p *userPermit) acquire(ctx context.Context) error {
	if p.semaphore == nil {
		return nil
	}
	p.release() // of an attempt before
	permit, err := p.semaphore.Acquire(ctx, p.user)
	switch {
	case err != nil:
		return &errors.Error{Code: errors.Unavailable, Message: "the number of active runs is unknown", Err: err}
	case permit.Release == nil:
		return errors.Errorf(errors.ResourceExhausted, "%d runs of the user are active; the limit is %d", permit.InUse, permit.Limit)
	}
	p.free = permit.Release
	return nil
}

func (p *userPermit) release() {
	if p.free != nil {
		p.free()
		p.free = nil
	}
}

// permitInterval is how often a run that is resumed asks for a permit.
const permitInterval = time.Second

// acquireLater acquires a permit as soon as there is one, for a run that was admitted on another node:
// the permit of that node becomes free some time after its death. The result ends this, and releases
// the permit.
func (p *userPermit) acquireLater(ctx context.Context) (release func()) {
	if p.semaphore == nil || len(p.user) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for p.acquire(ctx) != nil {
			if rules.Sleep(ctx, permitInterval) != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
		p.release()
	}
}
