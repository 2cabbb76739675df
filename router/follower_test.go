package router_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// newFeedRouter returns a router with topics feed/… to which every client may subscribe.
func newFeedRouter(b broker.Broker, h router.History) *router.Router {
	r := router.New(&router.Options{Broker: b})
	allow := func(*router.Context, router.TopicMatch) error { return nil }
	router.Topic(r, "feed/{name}", &router.TopicOptions{Authorize: allow, History: h})
	router.On(r, func(ctx *router.Context, m Blob) error { return ctx.Publish("feed/a", m, router.Except(ctx.Conn())) })
	return r
}

// A feed is a client of feed/a that keeps its position, as a client library does.
type feed struct {
	t        *testing.T
	client   *routertest.Conn
	epoch    string
	offset   uint64
	texts    []string // by offset - 1, "" where none was received
	resumes  int
	recovers int
}

type subscribed struct {
	Epoch     string `json:"epoch"`
	Offset    uint64 `json:"offset"`
	Recovered bool   `json:"recovered"`
}

func (subscribed) MessageType() string { return "$ws:subscribed" }

// subscribe subscribes with the position that the feed has, if any.
func (f *feed) subscribe(r *router.Router) {
	f.t.Helper()
	f.client = routertest.Dial(f.t, r)
	payload := `"positions":true`
	if f.epoch != "" {
		payload = fmt.Sprintf(`"epoch":%q,"offset":%d`, f.epoch, f.offset)
		f.resumes++
	}
	f.client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a",` + payload + `}}`)
	frame := f.client.Next()
	require.Equal(f.t, "$ws:subscribed", frame.Type, frame.Text)
	var answer subscribed
	require.NoError(f.t, json.Unmarshal(frame.Payload, &answer))
	if f.epoch != "" && answer.Recovered {
		f.recovers++
		require.Equal(f.t, f.offset, answer.Offset)
		require.Equal(f.t, f.epoch, answer.Epoch)
	}
	f.epoch, f.offset = answer.Epoch, answer.Offset
}

// receive receives everything that has arrived, and checks that nothing is missing or repeated.
func (f *feed) receive() {
	f.t.Helper()
	for f.client.Pending() > 0 {
		f.handle(f.client.Next())
	}
}

func (f *feed) handle(frame routertest.Frame) {
	f.t.Helper()
	if frame.Type == "$ws:position" {
		var moved subscribed
		require.NoError(f.t, json.Unmarshal(frame.Payload, &moved))
		require.Equal(f.t, f.offset+1, moved.Offset, frame.Text)
		f.offset = moved.Offset
		return
	}
	var envelope struct {
		Meta struct {
			Topic  string `json:"topic"`
			Offset uint64 `json:"offset"`
		} `json:"meta"`
		Payload Blob `json:"payload"`
	}
	require.NoError(f.t, json.Unmarshal([]byte(frame.Text), &envelope))
	require.Equal(f.t, "feed/a", envelope.Meta.Topic)
	require.Equal(f.t, f.offset+1, envelope.Meta.Offset, frame.Text)
	f.offset = envelope.Meta.Offset
	for uint64(len(f.texts)) < f.offset {
		f.texts = append(f.texts, "")
	}
	f.texts[f.offset-1] = envelope.Payload.Text
}

// TestFollower_ReconnectingClientsMissNothing lets clients reconnect to two nodes at random while
// several goroutines publish.
func TestFollower_ReconnectingClientsMissNothing(t *testing.T) {
	t.Parallel()
	for seed := range testscale.Tiers[uint64](2, 4, 10) {
		runSynctest(t, fmt.Sprint(seed), func(t *testing.T) { reconnect(t, seed) })
	}
}

func reconnect(t *testing.T, seed uint64) {
	const publications, clients, publishers = 600, 6, 3
	b := memory.NewBroker()
	nodes := []*router.Router{newFeedRouter(b, router.History{Messages: 500}), newFeedRouter(b, router.History{Messages: 500})}
	var wg sync.WaitGroup
	var mu sync.Mutex
	truth := make([]string, publications)
	for p := range publishers {
		rng := rand.New(rand.NewPCG(seed, uint64(p)))
		wg.Go(func() {
			for n := range publications / publishers {
				text := fmt.Sprintf("%d %d", p, n)
				at, err := publishStored(t.Context(), nodes[rng.IntN(2)], "feed/a", Blob{Text: text})
				require.NoError(t, err)
				mu.Lock()
				truth[at.Offset-1] = text
				mu.Unlock()
				time.Sleep(time.Duration(rng.IntN(4)) * time.Millisecond)
			}
		})
	}
	feeds := make([]*feed, clients)
	for i := range feeds {
		rng := rand.New(rand.NewPCG(seed, uint64(100+i)))
		f := &feed{t: t}
		feeds[i] = f
		f.subscribe(nodes[rng.IntN(2)])
		wg.Go(func() {
			for range 20 {
				time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
				for range rng.IntN(1 + f.client.Pending()) { // what has arrived and was not read is lost
					f.handle(f.client.Next())
				}
				f.client.Abort()
				time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
				f.subscribe(nodes[rng.IntN(2)])
			}
		})
	}
	wg.Wait()
	synctest.Wait()
	for _, f := range feeds {
		f.receive()
		assert.EqualValues(t, publications, f.offset)
		assert.Equal(t, f.resumes, f.recovers)
		for i, text := range f.texts {
			if text != "" {
				require.Equal(t, truth[i], text)
			}
		}
	}
}
