package internal_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/lease"
)

// A recorder is a holder that records its calls. Renewals take as long as slow says.
type recorder struct {
	mu       sync.Mutex
	slow     time.Duration
	recorded []string
}

func (r *recorder) calls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.recorded)
}

// setSlow changes how long later renewals take.
func (r *recorder) setSlow(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slow = d
}

func (r *recorder) record(call string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorded = append(r.recorded, call)
}

func (r *recorder) Renew(ctx context.Context) (wait func()) {
	r.mu.Lock()
	slow := r.slow
	r.mu.Unlock()
	over := make(chan struct{})
	time.AfterFunc(slow, func() {
		r.record("renew")
		close(over)
	})
	select {
	case <-over:
	case <-ctx.Done():
	}
	return func() { <-over }
}

func (r *recorder) Release(context.Context) { r.record("release") }

func TestStart_RenewsUntilEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		end := lease.Start(r, 3*time.Second)
		time.Sleep(3500 * time.Millisecond)
		assert.Equal(t, []string{"renew", "renew", "renew"}, r.calls())
		end()
		end()
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"renew", "renew", "renew", "release"}, r.calls())
	})
}

func TestStart_RenewsAfterFailedRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{slow: time.Hour}
		end := lease.Start(r, 3*time.Second)
		time.Sleep(3500 * time.Millisecond) // the second renewal begins after 3 s
		r.setSlow(0)
		time.Sleep(2 * time.Second)
		assert.NotEmpty(t, r.calls())
		end()
		time.Sleep(2 * time.Hour)
	})
}

// TestStart_LateRenewalIsReleased ends a lease during a renewal that reaches the store after the
// release.
func TestStart_LateRenewalIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{slow: 30 * time.Second}
		end := lease.Start(r, 3*time.Second)
		time.Sleep(1500 * time.Millisecond)
		end()
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"release", "renew", "release"}, r.calls())
	})
}
