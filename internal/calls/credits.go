package calls

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// Credits counts the items that a client still permits a stream to send. Without credits, which is
// nil, it permits any number.
type Credits struct {
	mu      sync.Mutex
	left    int64
	granted chan struct{} // closed by the next grant; nil unless a producer waits
}

// NewCredits returns the credits with which a stream starts.
func NewCredits(n int64) *Credits { return &Credits{left: n} }

// ErrUngranted ends a stream whose client grants no credit in time.
var ErrUngranted = &errors.Error{Code: errors.DeadlineExceeded, Message: "client grants no credit"}

// Grant adds n credits, at most as many as fit.
func (k *Credits) Grant(n int64) {
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

// Await uses a credit. It waits until there is one, at most for patience: a client could otherwise keep its
// handlers for ever. It returns ctx.Err() if ctx is done first.
func (k *Credits) Await(ctx context.Context, patience time.Duration) error {
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
			return ErrUngranted
		}
	}
	return nil
}

// take uses a credit and returns nil, or returns a channel that is closed when there may be one.
func (k *Credits) take() <-chan struct{} {
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
