package router

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// credits counts the items that a client still permits a stream to send. Without credits, which is
// nil, it permits any number.
type credits struct {
	mu      sync.Mutex
	left    int64
	granted chan struct{} // closed by the next grant; nil unless a producer waits
}

// newCredits returns the credits with which a stream starts.
func newCredits(n int64) *credits { return &credits{left: n} }

// errUngranted ends a stream whose client grants no credit in time.
var errUngranted = &errors.Error{Code: errors.DeadlineExceeded, Message: "client grants no credit"}

// grant adds n credits, at most as many as fit.
func (k *credits) grant(n int64) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left += n; k.left < 0 {
		k.left = math.MaxInt64
	}
	if k.granted != nil && k.left > 0 {
		close(k.granted)
		k.granted = nil
	}
}

// await uses a credit. It waits until there is one, at most for patience: a client could otherwise keep its
// handlers for ever. It returns ctx.Err() if ctx is done first.
func (k *credits) await(ctx context.Context, patience time.Duration) error {
	if k == nil {
		return nil
	}
	granted := k.take()
	if granted == nil {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for ; granted != nil; granted = k.take() {
		select {
		case <-granted:
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return errUngranted
		}
	}
	return nil
}

// take uses a credit and returns nil, or returns a channel that is closed when there may be one.
func (k *credits) take() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left > 0 {
		k.left--
		return nil
	}
	if k.granted == nil {
		k.granted = make(chan struct{})
	}
	return k.granted
}
