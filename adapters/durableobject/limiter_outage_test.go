package durableobject_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject"
	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/limit"
)

// A load calls a limiter until stop is called, and counts the outcomes.
type load struct {
	granted, denied, failed atomic.Int64
	slowest                 atomic.Int64 // milliseconds
	done                    chan struct{}
	wg                      sync.WaitGroup
}

func startLoad(t *testing.T, l limit.Limiter, key limit.Key) *load {
	o := &load{done: make(chan struct{})}
	for range 8 {
		o.wg.Go(func() {
			for {
				select {
				case <-o.done:
					return
				default:
					o.call(t, l, key)
				}
			}
		})
	}
	return o
}

func (o *load) call(t *testing.T, l limit.Limiter, key limit.Key) {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	d, err := limit.Consume(ctx, l, key, 1)
	if took := time.Since(start).Milliseconds(); took > o.slowest.Load() {
		o.slowest.Store(took)
	}
	switch {
	case err != nil:
		o.failed.Add(1)
		assert.Zero(t, d)
	case d.Allowed:
		o.granted.Add(1)
	default:
		o.denied.Add(1)
	}
}

func (o *load) stop() {
	close(o.done)
	o.wg.Wait()
}

// await waits until that many more calls have an outcome.
func (o *load) await(t *testing.T, n int64, outcome *atomic.Int64) {
	t.Helper()
	before := outcome.Load()
	require.Eventually(t, func() bool { return outcome.Load() >= before+n }, time.Minute, time.Millisecond)
}

// TestLimiter_RestartsGrantNothingExtra kills the runtime while calls are in flight.
func TestLimiter_RestartsGrantNothingExtra(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const capacity = 100_000
	p := limit.PerHour(1).Burst(capacity)
	l := durableobject.NewLimiter(newClient(s), p)
	consume(t, l, user("ann"), capacity-3000)
	load := startLoad(t, l, user("ann"))
	for n := range 8 {
		load.await(t, 100, &load.granted)
		if n%2 == 0 {
			s.Kill()
			load.await(t, 10, &load.failed)
		}
		s.Restart()
	}
	load.await(t, 100, &load.granted)
	load.stop()
	rest := int64(0)
	for consume(t, l, user("ann"), 1).Allowed {
		rest++
	}
	granted := load.granted.Load() + rest
	assert.LessOrEqual(t, granted, int64(3000))
	assert.GreaterOrEqual(t, granted+load.failed.Load(), int64(3000), "only failed calls may have been charged without a grant")
	assert.Less(t, load.slowest.Load(), int64(3000))
}

// TestLimiter_ClearedStorageGrantsOneCapacityMore removes the storage, which a deployment never
// does.
func TestLimiter_ClearedStorageGrantsOneCapacityMore(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const capacity = 50
	granted := 0
	for range 2 {
		l := durableobject.NewLimiter(newClient(s), limit.PerHour(1).Burst(capacity))
		for range 2 * capacity {
			if consume(t, l, user("ann"), 1).Allowed {
				granted++
			}
		}
		s.Clear()
	}
	assert.Equal(t, 2*capacity, granted)
}

// TestLimiter_RecoversFromOutages makes the Worker unavailable in several ways.
func TestLimiter_RecoversFromOutages(t *testing.T) {
	for name, tt := range map[string]struct {
		begin, end func(*workerdtest.Server, *redistest.Proxy)
	}{
		"stopped": {
			func(s *workerdtest.Server, _ *redistest.Proxy) { s.Stop() },
			func(s *workerdtest.Server, _ *redistest.Proxy) { s.Restart() },
		},
		"hung": {
			func(_ *workerdtest.Server, p *redistest.Proxy) { p.Stall() },
			func(_ *workerdtest.Server, p *redistest.Proxy) { p.Restore() },
		},
		"cut": {
			func(_ *workerdtest.Server, p *redistest.Proxy) { p.Cut() },
			func(_ *workerdtest.Server, p *redistest.Proxy) { p.Restore() },
		},
		"another secret": {
			func(s *workerdtest.Server, _ *redistest.Proxy) {
				s.Restart(func(o *workerdtest.Options) { o.Variables["SECRET"] = "another" })
			},
			func(s *workerdtest.Server, _ *redistest.Proxy) {
				s.Restart(func(o *workerdtest.Options) { o.Variables["SECRET_NEXT"] = s.Secret })
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t)
			proxy := redistest.StartProxy(t, strings.TrimPrefix(s.URL, "http://"))
			l := durableobject.NewLimiter(durableobject.NewClient("http://"+proxy.Addr, s.Secret, nil), limit.PerMinute(1_000_000))
			consume(t, l, user("ann"), 1)
			load := startLoad(t, l, user("ann"))
			tt.begin(s, proxy)
			load.await(t, 20, &load.failed)
			tt.end(s, proxy)
			load.await(t, 200, &load.granted)
			// On a busy machine, a few calls of a limiter that has recovered take too long, too.
			for deadline, failed := time.Now().Add(2*time.Minute), int64(200); failed > 20; {
				before := load.failed.Load()
				load.await(t, 200, &load.granted)
				failed = load.failed.Load() - before
				require.True(t, time.Now().Before(deadline), "it recovers without help")
			}
			load.stop()
			assert.Zero(t, load.denied.Load(), "an outage is no denial")
			assert.Less(t, load.slowest.Load(), int64(3000))
		})
	}
}
