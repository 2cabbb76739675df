package router_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// A conversation counts what a client has sent and received.
type conversation struct {
	client   *routertest.Conn
	requests int
	answers  int
	sent     map[string]int // requests by ID
	answered map[string]int // answers by ID
}

// send sends a random message.
func (c *conversation) send(rng *rand.Rand) {
	id := fmt.Sprint(rng.IntN(20))
	request := func(text string) {
		c.requests++
		c.sent[id]++
		c.client.SendText(text)
	}
	switch rng.IntN(9) {
	case 0:
		request(callText(id, ""))
	case 1:
		request(fmt.Sprintf(`{"type":"ECHO","meta":{"correlationId":%q,"timeoutMs":%d},"payload":{"n":-1,"text":""}}`, id, 1+rng.IntN(50)))
	case 2:
		request(fmt.Sprintf(`{"type":"BLOCK","meta":{"correlationId":%q,"credit":%d}}`, id, rng.IntN(5)))
	case 3:
		request(fmt.Sprintf(`{"type":"BLOCK","meta":{"correlationId":%q,"timeoutMs":%d}}`, id, 1+rng.IntN(50)))
	case 4:
		request(lateMeta("BLOCK", fmt.Sprintf(`"correlationId":%q,"timeoutMs":%d`, id, 1+rng.IntN(50))))
	case 5:
		c.client.SendText(fmt.Sprintf(`{"type":"$ws:credit","meta":{"correlationId":%q,"credit":%d}}`, id, rng.IntN(5)))
	case 6, 7:
		c.client.SendText(abortText(id))
	case 8:
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
}

// receive receives everything that has arrived. A progress message must belong to a request without an
// answer.
func (c *conversation) receive(t *testing.T) {
	t.Helper()
	for c.client.Pending() > 0 {
		frame := c.client.Next()
		id := frame.Meta.CorrelationID
		switch {
		case frame.Type != "$ws:rpc-progress":
			c.answers++
			c.answered[id]++
		case c.answered[id] >= c.sent[id]:
			t.Errorf("progress of %q follows its answer", id)
		}
	}
}

// TestConversation_EveryRequestHasOneAnswer sends random calls, streams, credits and aborts, with IDs
// that repeat, in two formats, and then shuts the router down.
func TestConversation_EveryRequestHasOneAnswer(t *testing.T) {
	for seed := range testscale.Tiers[uint64](4, 10, 20) {
		runSynctest(t, fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			var open atomic.Int64
			r := router.New(discardLogs(router.Options{Codecs: []router.Codec{cbor.New(nil)}, Limits: router.Limits{Concurrency: 10}}))
			r.Observe(func(e observe.Event) {
				switch e.Kind {
				case observe.Started:
					open.Add(1)
				case observe.Finished:
					open.Add(-1)
				}
			})
			router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
				if m.N < 0 {
					<-ctx.Done()
				}
				return Echoed(m), ctx.Err()
			})
			router.Stream(r, func(ctx *router.Context, _ Block) iter.Seq2[int, error] {
				return func(yield func(int, error) bool) {
					for n := range 20 {
						time.Sleep(time.Millisecond)
						if !yield(n, nil) {
							return
						}
					}
				}
			})
			var opts []routertest.Option
			if seed%2 == 1 {
				opts = append(opts, routertest.Codec(cbor.New(nil)))
			}
			c := &conversation{client: routertest.Dial(t, r, opts...), sent: map[string]int{}, answered: map[string]int{}}
			for range 300 {
				c.send(rng)
				if rng.IntN(10) == 0 {
					synctest.Wait()
					c.receive(t)
				}
			}
			done := make(chan error, 1)
			synctest.Wait()
			go func() { done <- r.Shutdown(t.Context()) }()
			require.NoError(t, <-done)
			synctest.Wait()
			c.receive(t)
			assert.Equal(t, c.requests, c.answers)
			assert.Zero(t, open.Load())
			assert.Equal(t, router.StatusServiceRestart, c.client.Closed().Code)
		})
	}
}
