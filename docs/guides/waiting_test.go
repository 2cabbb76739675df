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
		came, entered time.Duration
		refused       *router.LimitExceeded
	}
	var calls []*call
	start := time.Now()
	play(7*second, func(at time.Duration) {
		if !pace(at, second/2, 3*second+1, 300*time.Millisecond) {
			return
		}
		c := &call{came: at}
		calls = append(calls, c)
		go func() {
			one := newClient(t, "ann", admit)
			one.call(at)
			c.refused, c.entered = one.refusal, time.Since(start)
		}()
		synctest.Wait()
	})
	p := newPicture("MaxWait: messages wait in the order in which they came",
		"policy 1/s burst 2, MaxWait 3s; ○ comes, ● enters", 7*second)
	for _, c := range calls {
		switch waited := c.entered - c.came; {
		case c.refused != nil:
			path(&p.front, "no", "%s", p.crossAt(c.came))
			p.note(c.came, "refused: it would wait %v; come back in %v", 3*second+c.refused.RetryAfter, c.refused.RetryAfter)
		case waited == 0:
			p.dot(c.entered, "yes")
			p.note(c.entered, "enters at once")
		default:
			path(&p.front, "span", "M%d,%dH%d", p.x(c.came), p.middle(), p.x(c.entered))
			p.dot(c.came, "came")
			p.dot(c.entered, "yes")
			p.note(c.entered, "enters after %v", waited)
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

// A rendering is a call that takes a place for a while, or is refused.
type rendering struct {
	from, to time.Duration
	refused  bool
}

func inFlight(t *testing.T) []byte {
	var calls []*rendering
	var running atomic.Int64
	r := router.New(&router.Options{
		Authenticate: func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil },
		OnLimitExceeded: func(l router.LimitExceeded) {
			assert.Equal(t, router.LimitConcurrency, l.Kind)
			calls[len(calls)-1].refused = true
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
	var places steps
	play(12*second, func(at time.Duration) {
		if millis, ok := takes[at]; ok {
			calls = append(calls, &rendering{from: at})
			tabs[len(calls)%2].Send(render{millis})
			synctest.Wait()
		}
		places.add(at, running.Load())
	})
	return drawInFlight(calls, places)
}

func drawInFlight(calls []*rendering, places steps) []byte {
	p := newPicture("Concurrency: two at a time, and the next when one has ended",
		"two places for each user, over all connections", 12*second)
	for _, c := range calls {
		if c.refused {
			path(&p.front, "no", "%s", p.crossAt(c.from))
			p.note(c.from, "refused")
		} else {
			p.bar(c.from, c.to)
		}
		p.y += rowHigh
	}
	p.name("calls")
	p.gap()
	p.level("places taken", places, 2, 36)
	return p.svg(second)
}
