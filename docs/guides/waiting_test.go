package guides_test

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func maxWait(t *testing.T) []byte {
	limiter := memory.NewLimiter(limit.PerSecond(1).Burst(2))
	admit := ratelimit.New(limiter, &ratelimit.Options{MaxWait: 3 * second})
	type call struct {
		arrived, admitted time.Duration
		rejected          *router.LimitExceeded
	}
	var calls []*call
	start := time.Now()
	play(7*second, func(at time.Duration) {
		if !pace(at, second/2, 3*second+1, 300*time.Millisecond) {
			return
		}
		c := &call{arrived: at}
		calls = append(calls, c)
		go func() {
			one := newClient(t, "ann", admit)
			one.call(at)
			c.rejected, c.admitted = one.rejection, time.Since(start)
		}()
		synctest.Wait()
	})
	p := newPicture("MaxWait: messages wait in order of arrival",
		"policy 1/s burst 2, MaxWait 3s; ○ arrives, ● is admitted", 7*second)
	for _, c := range calls {
		switch waited := c.admitted - c.arrived; {
		case c.rejected != nil:
			path(&p.front, "no", "%s", p.crossAt(c.arrived))
			p.note(c.arrived, "rejected: would wait %v; retry after %v", 3*second+c.rejected.RetryAfter, c.rejected.RetryAfter)
		case waited == 0:
			p.dot(c.admitted, "yes")
			p.note(c.admitted, "admitted at once")
		default:
			path(&p.front, "span", "M%d,%dH%d", p.x(c.arrived)+28, p.middle(), p.x(c.admitted))
			p.dot(c.arrived, "arrived")
			p.dot(c.admitted, "yes")
			p.note(c.admitted, "admitted after %v", waited)
		}
		p.y += rowHigh
	}
	p.name("messages")
	return p.svg(second)
}

type render struct {
	Millis int64 `json:"millis"`
}

func (render) MessageType() string { return "RENDER" }

type rendered struct{}

func (rendered) MessageType() string { return "RENDERED" }

// A rendering is a call that uses a permit until it returns, or is rejected.
type rendering struct {
	from, to time.Duration
	rejected bool
}

func inFlight(t *testing.T) []byte {
	var calls []*rendering
	var running atomic.Int64
	r := router.New(&router.Options{
		Authenticate: func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil },
		OnLimitExceeded: func(l router.LimitExceeded) {
			assert.Equal(t, router.LimitConcurrency, l.Kind)
			calls[len(calls)-1].rejected = true
		},
		OnError: func(f router.ErrorReport) { assert.NoError(t, f.Err) },
	})
	r.Use(ratelimit.Concurrency(memory.NewSemaphore(2), &ratelimit.ConcurrencyOptions{Key: ratelimit.KeyPerUser}))
	start := time.Now()
	router.RPC(r, func(_ *router.Context, m render) (rendered, error) {
		c := calls[len(calls)-1]
		running.Add(1)
		time.Sleep(time.Duration(m.Millis) * time.Millisecond)
		running.Add(-1)
		c.to = time.Since(start)
		return rendered{}, nil
	})
	tabs := []*routertest.Conn{routertest.Dial(t, r), routertest.Dial(t, r)}
	takes := map[time.Duration]int64{
		1 * second: 4000, 2 * second: 5000, 3 * second: 2000, 4 * second: 2000,
		5*second + second/2: 4000, 6*second + second/2: 2000, 8 * second: 3000,
	}
	var permits steps
	play(12*second, func(at time.Duration) {
		if millis, ok := takes[at]; ok {
			calls = append(calls, &rendering{from: at})
			tabs[len(calls)%2].Send(render{millis})
			synctest.Wait()
		}
		permits.add(at, running.Load())
	})
	return drawInFlight(calls, permits)
}

func drawInFlight(calls []*rendering, permits steps) []byte {
	p := newPicture("Concurrency: two calls at a time, and the next when one has returned",
		"two permits per user, over all connections", 12*second)
	for _, c := range calls {
		if c.rejected {
			path(&p.front, "no", "%s", p.crossAt(c.from))
			p.note(c.from, "rejected")
		} else {
			p.bar(c.from, c.to)
		}
		p.y += rowHigh
	}
	p.name("calls")
	p.gap()
	p.level("permits used", permits, 2, 36)
	return p.svg(second)
}
