//go:build unix

package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

// This file compares the state of clients with a model, while keys are set and removed, the
// connections to Redis break, Redis restarts, and clients join.

type price struct {
	Symbol string `json:"symbol"`
	N      int    `json:"n"`
}

func (price) MessageType() string { return "PRICE" }

func (p price) ConflationKey() string { return p.Symbol }

type priceRemoved struct {
	Symbol string `json:"symbol"`
}

func (priceRemoved) MessageType() string { return "PRICE_REMOVED" }

func (p priceRemoved) ConflationKey() string { return p.Symbol }

// A snapshot is the prices that a client had at an offset.
type snapshot struct {
	offset uint64
	prices map[string]int
}

// A priceClient is a client that keeps the price of each symbol across connections.
type priceClient struct {
	t       *testing.T
	epoch   string // "" while the prices are incomplete
	offset  uint64
	prices  map[string]int
	missing int // publications of the state that have not arrived
	answer  priceFrame
	ask     bool // on this connection for the first time, or after a loss

	snapshots []snapshot
	states    int // answers with a state
}

type priceFrame struct {
	Type string
	Meta struct{ Offset uint64 }

	Payload struct {
		Symbol string
		N      int
		Epoch  string
		Offset uint64
		State  *int
		Ended  *struct{ Offset uint64 }
		Lost   *struct{}
		Reset  bool
	}
}

// follow connects to a server, asks for what was missed or the state, and receives until ctx is done.
func (c *priceClient) follow(ctx context.Context, url string) error {
	ws, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return err
	}
	defer func() { _ = ws.CloseNow() }()
	c.ask = true
	for {
		if c.ask {
			c.ask = false
			subscribe := map[string]any{"topic": "prices", "state": true, "epoch": c.epoch, "offset": c.offset}
			if err := wsjson.Write(ctx, ws, map[string]any{"type": "$ws:subscribe", "payload": subscribe}); err != nil {
				return err
			}
		}
		_, text, err := ws.Read(ctx)
		if err != nil {
			return err
		}
		var m priceFrame
		require.NoError(c.t, json.Unmarshal(text, &m))
		c.handle(m, string(text))
	}
}

func (c *priceClient) handle(m priceFrame, text string) {
	switch m.Type {
	case "PRICE":
		c.prices[m.Payload.Symbol] = m.Payload.N
		c.advance(m.Meta.Offset, text)
	case "PRICE_REMOVED":
		require.Zero(c.t, c.missing, "a state contains no removal")
		delete(c.prices, m.Payload.Symbol)
		c.advance(m.Meta.Offset, text)
	case "$ws:subscribed":
		if c.answer = m; m.Payload.State == nil {
			c.epoch = m.Payload.Epoch
			return
		}
		c.states++
		c.prices, c.epoch, c.missing = map[string]int{}, "", *m.Payload.State
		c.complete()
	case "$ws:position":
		if m.Payload.Ended != nil && m.Payload.Ended.Offset >= c.offset && c.epoch != "" {
			c.epoch = m.Payload.Epoch
			return
		}
		c.epoch, c.offset = "", m.Payload.Offset
		c.ask = true
	case "ERROR", "RPC_ERROR": // the state cannot be read in time
		c.ask = true
	}
}

func (c *priceClient) advance(offset uint64, text string) {
	if c.missing > 0 {
		require.LessOrEqual(c.t, offset, c.answer.Payload.Offset, text)
		c.missing--
		c.complete()
		return
	}
	require.Equal(c.t, c.offset+1, offset, text)
	c.offset = offset
	if c.epoch != "" {
		c.snapshots = append(c.snapshots, snapshot{offset, maps.Clone(c.prices)})
	}
}

func (c *priceClient) complete() {
	if c.missing == 0 {
		c.epoch, c.offset = c.answer.Payload.Epoch, c.answer.Payload.Offset
		c.snapshots = append(c.snapshots, snapshot{c.offset, maps.Clone(c.prices)})
	}
}

// publishPrices sets and removes prices until stop is done, and returns the state at every offset.
func publishPrices(ctx, stop context.Context, nodes []*router.Router) map[uint64]map[string]int {
	states := map[uint64]map[string]int{0: {}}
	state := map[string]int{}
	for n := 1; stop.Err() == nil && ctx.Err() == nil; n++ {
		symbol, removed := fmt.Sprint(rand.N(8)), rand.N(3) == 0
		var m router.Message = price{symbol, n}
		if state[symbol] = n; removed {
			m = priceRemoved{symbol}
			delete(state, symbol)
		}
		opts := []router.PublishOption{router.IdempotencyKey(fmt.Sprint(n))}
		if removed {
			opts = append(opts, router.Removed())
		}
		for ctx.Err() == nil {
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			var at broker.Position
			err := nodes[n%len(nodes)].Publish("prices", m, append(opts, router.Stored(attempt, &at))...)
			cancel()
			if err == nil {
				states[at.Offset] = maps.Clone(state)
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(rand.N(4 * time.Millisecond))
	}
	return states
}

func TestState_JoinersOverRedisHaveTheStateOfTheirPosition(t *testing.T) {
	testscale.FullOnly(t, "TestRecovery_EveryClientReceivesEveryPublicationOnce")
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
		r := router.New(&router.Options{Broker: redis.NewBroker(client), Logger: slog.New(slog.DiscardHandler)})
		router.Topic(r, "prices", &router.TopicOptions{
			History: router.History{Messages: 20}, Authorize: func(*router.Context, router.TopicMatch) error { return nil },
		})
		web := httptest.NewServer(r)
		t.Cleanup(web.Close)
		nodes, proxies, urls = append(nodes, r), append(proxies, proxy), append(urls, web.URL)
	}
	moving, stopMoving := context.WithCancel(ctx)
	publishing, stopPublishing := context.WithCancel(ctx)
	var publisher, joining sync.WaitGroup
	var states map[uint64]map[string]int
	publisher.Go(func() { states = publishPrices(ctx, publishing, nodes) })
	clients := make([]*priceClient, 6)
	for i := range clients {
		clients[i] = &priceClient{t: t}
		joining.Go(func() {
			for moving.Err() == nil {
				stay, leave := context.WithTimeout(moving, 50*time.Millisecond+rand.N(300*time.Millisecond))
				_ = clients[i].follow(stay, urls[rand.N(2)])
				leave()
				if rand.N(2) == 0 {
					clients[i].epoch = "" // a new client
				}
			}
		})
	}
	time.Sleep(time.Second)
	proxies[0].Cut()
	time.Sleep(time.Second)
	proxies[0].Restore()
	time.Sleep(time.Second)
	server.Pause()
	time.Sleep(time.Second)
	server.Resume()
	time.Sleep(time.Second)
	server.Restart()
	time.Sleep(2 * time.Second)
	stopPublishing()
	publisher.Wait()
	stopMoving()
	joining.Wait()

	checked, joins := 0, 0
	top := uint64(len(states) - 1)
	for i, c := range clients {
		for c.offset < top || c.epoch == "" {
			require.NoError(t, ctx.Err(), "client %d is at offset %d of %d", i, c.offset, top)
			stay, leave := context.WithTimeout(ctx, 500*time.Millisecond)
			_ = c.follow(stay, urls[i%2])
			leave()
		}
		assert.Equal(t, states[top], c.prices, "client %d", i)
		for _, s := range c.snapshots {
			require.Equal(t, states[s.offset], s.prices, "client %d, offset %d", i, s.offset)
		}
		checked, joins = checked+len(c.snapshots), joins+c.states
	}
	assert.Greater(t, joins, 20)
	t.Logf("%d publications, %d joins with the state, %d comparisons", top, joins, checked)
}
