//go:build linux

package stress_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/router"
)

// Said is a message in a room.
type Said struct {
	By int `json:"by"`
	N  int `json:"n"`
}

func (Said) MessageType() string { return "SAID" }

// TestHistory_BurstLosesNothing lets the members of a room on two nodes send at once, more than the room
// keeps.
func TestHistory_BurstLosesNothing(t *testing.T) {
	t.Run("memory", func(t *testing.T) {
		shared := memory.NewBroker()
		burst(t, func() broker.Broker { return shared })
	})
	t.Run("Redis", func(t *testing.T) {
		client := redistest.Start(t).Client(t)
		burst(t, func() broker.Broker { return redis.NewBroker(client) })
	})
}

func burst(t *testing.T, newBroker func() broker.Broker) {
	const members, each, kept = 20, 100, 100
	var nodes []string
	for range 2 {
		r := router.New(&router.Options{
			Broker:         newBroker(),
			Limits:         router.Limits{QueueMessages: 2 * members * each},
			Timeouts:       patientTimeouts,
			OnMessagesLost: func(topic string, n int) { t.Errorf("%d messages of %q were lost", n, topic) },
			Logger:         slog.New(slog.DiscardHandler),
		})
		router.Topic(r, "room/{id}", &router.TopicOptions{
			Authorize: func(*router.Context, router.TopicMatch) error { return nil },
			History:   router.History{Messages: kept},
		})
		router.On(r, func(ctx *router.Context, m Said) error { return ctx.Publish("room/go", m) })
		server := httptest.NewServer(r)
		t.Cleanup(func() {
			assert.NoError(t, r.Shutdown(context.Background()))
			server.Close()
		})
		nodes = append(nodes, server.URL)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var ready, done sync.WaitGroup
	ready.Add(members)
	for n := range members {
		done.Go(func() {
			received, err := burstMember(ctx, nodes[n%2], n, each, members*each, &ready)
			assert.NoError(t, err, "member %d, after %d messages", n, received)
		})
	}
	done.Wait()
}

// burstMember subscribes, waits for the others, sends its messages, and reads until it has received all.
func burstMember(ctx context.Context, url string, number, each, all int, ready *sync.WaitGroup) (received int, err error) {
	ws, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		ready.Done()
		return 0, err
	}
	defer ws.CloseNow()
	ws.SetReadLimit(-1)
	subscribe := `{"type":"$ws:subscribe","payload":{"topic":"room/go","positions":true}}`
	if err := ws.Write(ctx, websocket.MessageText, []byte(subscribe)); err != nil {
		return 0, err
	}
	var answer struct{ Type string }
	err = wsjson.Read(ctx, ws, &answer)
	ready.Done()
	if err != nil {
		return 0, err
	}
	ready.Wait()
	sent := make(chan error, 1)
	go func() {
		for i := range each {
			if err := ws.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"type":"SAID","payload":{"by":%d,"n":%d}}`, number, i)); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for last := -1.0; received < all; received++ {
		var m struct {
			Type string
			Meta struct{ Offset float64 }
		}
		if err := wsjson.Read(ctx, ws, &m); err != nil {
			return received, err
		}
		if m.Type != (Said{}).MessageType() || last >= 0 && m.Meta.Offset != last+1 {
			return received, fmt.Errorf("received %+v after offset %v", m, last)
		}
		last = m.Meta.Offset
	}
	return received, <-sent
}
