package clustercost_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/internal/simnet"
	"github.com/penstock-go/penstock/router"
)

// enter makes a client a subscriber of a room.
type enter struct{ Room string }

// entered is the answer.
type entered struct{}

// news is a message to a user.
type news struct{ Text string }

func (enter) MessageType() string   { return "ENTER" }
func (entered) MessageType() string { return "ENTERED" }
func (news) MessageType() string    { return "NEWS" }

// resumeWithin is so long that no session is stored again during a test.
const resumeWithin = time.Hour

// roomClients is how many clients share a room.
const roomClients = 5

// A routerbed is a cluster of routers with clients, in a bubble.
type routerbed struct {
	testbed

	net     *simnet.Network
	store   *memory.Broker
	routers []*router.Router
	clients []*client.Client
	dialed  atomic.Int64
}

// newRouterbed starts a cluster of routers, and connects clients, which are users of their own.
func newRouterbed(t *testing.T, nodes, clients int) *routerbed {
	b := &routerbed{testbed: testbed{t: t, size: nodes, meter: newMeter()}, net: simnet.New(1, simnet.Links{MaxDelay: 20 * time.Millisecond, Window: 32 << 10}), store: memory.NewBroker()}
	for i := range nodes {
		b.start(hostName(i))
	}
	time.Sleep(5 * time.Second)
	// All at once, because each second costs all nodes.
	b.clients = make([]*client.Client, clients)
	b.t.Cleanup(func() { b.forEachClient(b.disconnect) })
	b.forEachClient(b.connect)
	b.rest()
	return b
}

func hostName(node int) string { return fmt.Sprint("node", node) }

func userName(client int) string { return fmt.Sprintf("user%06d", client) }

// start starts a router and its server.
func (b *routerbed) start(host string) {
	r := router.New(&router.Options{
		Broker: meteredBroker{b.meter, b.store},
		Resume: router.ResumeOptions{Within: resumeWithin},
		Logger: slog.New(slog.DiscardHandler),
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(req)}, nil
		},
	})
	router.Topic(r, "chat/{room}", &router.TopicOptions{History: router.History{Messages: 100, Age: time.Hour}})
	router.RPC(r, func(ctx *router.Context, m enter) (entered, error) {
		return entered{}, ctx.Subscribe("chat/" + m.Room)
	})
	server := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	listener := b.net.Listen(host)
	go func() { _ = server.Serve(listener) }()
	b.routers = append(b.routers, r)
	b.t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = r.Shutdown(ended)
		_ = server.Close()
	})
}

// forEachClient calls f for the numbers of all clients at once, and waits.
func (b *routerbed) forEachClient(f func(number int)) {
	var all sync.WaitGroup
	for i := range b.clients {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// connect connects a client. Each connection is to the next node.
func (b *routerbed) connect(number int) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		node := int(b.dialed.Add(1)) % len(b.routers)
		return b.net.Dial(ctx, userName(number), hostName(node))
	}}
	c := client.New("ws://cluster.test/ws", &client.Options{
		HTTPClient: &http.Client{Transport: transport}, Resume: true, Logger: slog.New(slog.DiscardHandler),
		Token: func(context.Context, bool) (string, error) { return userName(number), nil },
	})
	b.clients[number] = c
	assert.NoError(b.t, c.Connect(context.Background()))
	_, err := client.Call[entered](context.Background(), c, enter{fmt.Sprint(number / roomClients)})
	assert.NoError(b.t, err)
}

// disconnect closes a client.
func (b *routerbed) disconnect(number int) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = b.clients[number].Close(ctx)
}

// storming returns what it costs a client that all connections are lost, and all clients resume their sessions at once.
func storming(t *testing.T, nodes int) cost {
	clients := min(10*nodes, 500)
	b := newRouterbed(t, nodes, clients)
	spent := b.costOf(clients, func() {
		for i := range nodes {
			b.net.Cut(hostName(i))
		}
		time.Sleep(10 * time.Second)
	})
	for _, c := range b.clients {
		conn, ok := c.Connection()
		require.True(t, ok && conn.Resumed, "a client has not resumed its session")
	}
	return spent
}

// asks is how many questions a test asks.
const asks = 20

// listing returns what it costs to list the connections of a user.
func listing(t *testing.T, nodes int) cost {
	b := newRouterbed(t, nodes, 5)
	return b.costOf(asks, func() {
		for i := range asks {
			found, err := b.routers[i%nodes].UserConns(context.Background(), "", userName(1))
			require.NoError(t, err)
			require.Len(t, found.Conns, 1)
		}
	})
}

// sending returns what it costs to send a message to a user without a history.
func sending(t *testing.T, nodes int) cost {
	b := newRouterbed(t, nodes, 5)
	return b.costOf(asks, func() {
		for i := range asks {
			_, err := b.routers[i%nodes].SendToUser("", userName(1), news{"hello"})
			require.NoError(t, err)
		}
	})
}

// disconnecting returns what it costs to disconnect a user.
func disconnecting(t *testing.T, nodes int) cost {
	b := newRouterbed(t, nodes, 5)
	return b.costOf(asks, func() {
		for i := range asks {
			_, err := b.routers[i%nodes].DisconnectUser("", "nobody", router.StatusPolicyViolation, "")
			require.NoError(t, err)
		}
	})
}
