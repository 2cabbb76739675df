//go:build unix

package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/router"
)

// This file counts every publication of a topic with a history at every client, while the connections
// to Redis break, Redis stops and restarts, and clients reconnect.

type headline struct {
	Text string `json:"text"`
}

func (headline) MessageType() string { return "HEADLINE" }

// A follower is a client that keeps its position across connections.
type follower struct {
	t        *testing.T
	epoch    string
	offset   uint64
	received map[uint64]string
	returns  int // subscriptions with a position
	recovers int
	notices  int // of ended epochs
	lost     int // publications, according to notices
	resets   int
}

// A frame is what a server sends about a topic with a history.
type frame struct {
	Type string
	Meta struct{ Offset uint64 }

	Payload struct {
		Text      string
		Epoch     string
		Offset    uint64
		Recovered bool
		Reset     bool
		Lost      *struct{ From, To uint64 }
		Ended     *struct {
			Epoch  string
			Offset uint64
		}
	}
}

// follow connects to a server and receives until ctx is done.
func (f *follower) follow(ctx context.Context, url string) error {
	ws, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return err
	}
	defer func() { _ = ws.CloseNow() }()
	subscribe := map[string]any{"topic": "news", "positions": true, "epoch": f.epoch, "offset": f.offset}
	if err := wsjson.Write(ctx, ws, map[string]any{"type": "$ws:subscribe", "payload": subscribe}); err != nil {
		return err
	}
	for {
		_, text, err := ws.Read(ctx)
		if err != nil {
			return err
		}
		var m frame
		require.NoError(f.t, json.Unmarshal(text, &m))
		f.handle(m, string(text))
	}
}

func (f *follower) handle(m frame, text string) {
	switch p := m.Payload; {
	case m.Type == "HEADLINE":
		require.Equal(f.t, f.offset+1, m.Meta.Offset, text)
		f.offset = m.Meta.Offset
		f.received[f.offset] = p.Text
		return
	case m.Type == "RPC_ERROR", m.Type == "ERROR":
		return // the history cannot be read in time; the client tries again
	case m.Type == "$ws:subscribed" && f.epoch == "":
	case m.Type == "$ws:subscribed":
		f.returns++
		if !p.Recovered {
			f.resets++
			break
		}
		f.recovers++
		if p.Ended == nil {
			require.Equal(f.t, f.offset, p.Offset, text)
		}
	case p.Reset:
		f.resets++
	case p.Lost != nil:
		require.Equal(f.t, f.offset+1, p.Lost.From, text)
		f.lost += int(p.Lost.To - p.Lost.From + 1)
	}
	if ended := m.Payload.Ended; ended != nil {
		f.notices++
		require.LessOrEqual(f.t, m.Payload.Offset, max(f.offset, ended.Offset), text)
	}
	for offset := m.Payload.Offset + 1; offset <= f.offset; offset++ {
		delete(f.received, offset) // of an ended epoch
	}
	f.epoch, f.offset = m.Payload.Epoch, m.Payload.Offset
}

// publishAll publishes texts and repeats what may not have been stored.
func publishAll(ctx context.Context, r *router.Router, name string, stop *atomic.Bool) (published []string) {
	for n := 0; !stop.Load(); n++ {
		text := fmt.Sprintf("%s %d", name, n)
		for {
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			_, err := r.PublishStored(attempt, "news", headline{text}, &router.PublishOptions{IdempotencyKey: text})
			cancel()
			if err == nil {
				published = append(published, text)
				break
			}
			if ctx.Err() != nil {
				return published
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Duration(rand.N(4)) * time.Millisecond)
	}
	return published
}

func TestRecovery_EveryClientReceivesEveryPublicationOnce(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var nodes []*router.Router
	var proxies []*redistest.Proxy
	var urls []string
	for range 2 {
		proxy := redistest.StartProxy(t, server.Addr)
		client := goredis.NewClient(&goredis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true, MaxRetries: -1})
		t.Cleanup(func() { _ = client.Close() })
		r := router.New(&router.Options{
			Broker: redis.NewBroker(client), Logger: slog.New(slog.DiscardHandler),
			Limits: router.Limits{QueueMessages: 100_000, QueueBytes: 64 << 20}, // what a client has missed must fit
		})
		router.Topic(r, "news", &router.TopicOptions{
			History: router.History{Messages: 100_000}, Authorize: func(*router.Context, router.TopicName) error { return nil },
		})
		web := httptest.NewServer(r)
		t.Cleanup(web.Close)
		nodes, proxies, urls = append(nodes, r), append(proxies, proxy), append(urls, web.URL)
	}
	var stop atomic.Bool
	var publishers, clients sync.WaitGroup
	published := make([][]string, 4)
	for i := range published {
		publishers.Go(func() { published[i] = publishAll(ctx, nodes[i%2], fmt.Sprint(i), &stop) })
	}
	followers := make([]*follower, 6)
	moving, stopMoving := context.WithCancel(ctx)
	for i := range followers {
		f := &follower{t: t, received: map[uint64]string{}}
		followers[i] = f
		clients.Go(func() {
			for moving.Err() == nil {
				stay, leave := context.WithTimeout(moving, time.Duration(100+rand.N(900))*time.Millisecond)
				_ = f.follow(stay, urls[rand.N(2)])
				leave()
			}
		})
	}

	for range 2 {
		time.Sleep(time.Second)
		proxies[0].Cut()
		time.Sleep(time.Second)
		proxies[0].Restore()
		time.Sleep(time.Second)
		proxies[1].StallReplies()
		time.Sleep(time.Second)
		proxies[1].Restore()
		server.Pause()
		time.Sleep(time.Second)
		server.Resume()
		time.Sleep(time.Second)
		server.Restart()
		time.Sleep(2 * time.Second)
	}
	stop.Store(true)
	publishers.Wait()
	stopMoving()
	clients.Wait()

	final := readAll(ctx, t, nodes[0])
	assert.Len(t, final, total(published), "every text is stored once")
	var last sync.WaitGroup
	for _, f := range followers {
		last.Go(func() { // what is left
			for f.offset < uint64(len(final)) && ctx.Err() == nil {
				stay, leave := context.WithTimeout(ctx, 500*time.Millisecond)
				_ = f.follow(stay, urls[0])
				leave()
			}
		})
	}
	last.Wait()
	recovered, returned, notices := 0, 0, 0
	for i, f := range followers {
		for offset, text := range f.received {
			require.Equal(t, final[offset-1], text, "client %d, offset %d", i, offset)
		}
		assert.Zero(t, f.resets+f.lost, "client %d: the history holds everything", i)
		recovered, returned, notices = recovered+f.recovers, returned+f.returns, notices+f.notices
	}
	assert.Equal(t, returned, recovered)
	assert.Positive(t, notices, "a restart of Redis begins an epoch")
	t.Logf("%d publications, %d returns, %d notices of ended epochs", len(final), returned, notices)
}

func total(published [][]string) (n int) {
	for _, texts := range published {
		n += len(texts)
	}
	return n
}

// readAll returns the texts of the topic by offset - 1.
func readAll(ctx context.Context, t *testing.T, r *router.Router) (texts []string) {
	t.Helper()
	seen := map[string]bool{}
	for {
		messages, current, err := r.ReadHistory(ctx, "news", broker.Query{After: uint64(len(texts)), Limit: 1000})
		if errors.CodeOf(err) == errors.Unavailable {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		require.NoError(t, err)
		for _, m := range messages {
			var h headline
			require.NoError(t, m.Decode(&h))
			require.EqualValues(t, len(texts)+1, m.Position.Offset)
			require.False(t, seen[h.Text], "%q is stored twice", h.Text)
			seen[h.Text] = true
			texts = append(texts, h.Text)
		}
		if uint64(len(texts)) == current.Offset {
			return texts
		}
	}
}
