//go:build unix

package faults_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

const (
	rooms          = 4     // topics with messages
	toUser         = rooms // stands for the room of messages that Router.SendToUser sends
	streams        = rooms + 1
	user           = "user" // has a connection on each node
	lobby          = "lobby"
	publishEvery   = 5 * time.Millisecond
	consumeEvery   = 5 * time.Millisecond
	lookEvery      = 20 * time.Millisecond  // at the presence
	churnEvery     = 100 * time.Millisecond // of a member of the lobby
	shutdownBurst  = 1000                   // messages published immediately before a shutdown
	shutdownWithin = 5 * time.Second
	nodeEnv        = "PENSTOCK_FAULTS_NODE"
)

// policy is shared by all nodes.
var policy = limit.PerSecond(100).Burst(50).Named("faults")

func room(n int) string { return fmt.Sprint("room", n) }

// A nodeSpec says how a node process reaches Redis.
type nodeSpec struct {
	Name     string
	Kind     redisKind
	Addrs    []string // of the server, the sentinels, or nodes of the cluster
	Master   string   // the sentinels' name of the master
	Username string   // and password, on a single server; "" for the default user

	Durability broker.Durability // of the topics of recovery tests that begin with "safe"
}

type redisKind string

const (
	single   redisKind = "single"
	sentinel redisKind = "sentinel"
	cluster  redisKind = "cluster"
)

func (s *nodeSpec) client() goredis.UniversalClient {
	switch s.Kind {
	case sentinel:
		return goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: s.Master, SentinelAddrs: s.Addrs})
	case cluster:
		return goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: s.Addrs})
	default:
		return goredis.NewClient(&goredis.Options{Addr: s.Addrs[0], Username: s.Username, Password: s.Username})
	}
}

// A note is a numbered message.
type note struct {
	From string `json:"from"`
	Room int    `json:"room"`
	Num  int    `json:"num"` // from 1, of this node in this room
}

func (note) MessageType() string { return "NOTE" }

// TestNode is the main function of a node process. Its standard input has commands, a line each:
// "settle" ends changes of presence, "stop" ends publishing and consuming. It ends with its
// standard input, or with SIGTERM after a graceful shutdown.
func TestNode(t *testing.T) {
	text := os.Getenv(nodeEnv)
	if text == "" {
		t.Skip("only runs as a child process of other tests")
	}
	n := &node{settle: make(chan struct{}), stop: make(chan struct{})}
	require.NoError(t, json.Unmarshal([]byte(text), &n.spec))
	client := n.spec.client()
	n.limiter = redis.NewLimiter(client, policy)
	unlimited := router.Rate{PerSecond: router.Unlimited}
	n.router = router.New(&router.Options{
		Broker: redis.NewBroker(client),
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: req.URL.Path[1:]}, nil
		},
		OnOpen:         n.open,
		OnMessagesLost: func(topic string, messages int) { n.print("R", now(), strings.TrimPrefix(topic, "room"), messages) },
		Limits: router.Limits{
			QueueMessages: 1 << 20, QueueBytes: 1 << 30,
			HandshakesPerIP: unlimited, MessagesPerConn: unlimited, MessagesPerIP: unlimited, ConnsPerIP: router.Unlimited,
		},
		Timeouts: router.Timeouts{Ping: time.Hour, Pong: time.Hour, Message: time.Hour}, // longer than every pause of the process
	})
	server := httptest.NewServer(n.router)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { assert.NoError(t, n.receive(ctx, server.URL+"/"+user)) })
	wg.Go(func() { assert.NoError(t, n.receive(ctx, server.URL+"/"+lobby)) })
	wg.Go(func() { n.changePresence(ctx) })
	wg.Go(func() { n.watchPresence(ctx) })
	wg.Go(func() { n.publish(ctx) })
	wg.Go(func() { n.consume(ctx) })

	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	commands := make(chan string)
	go readCommands(commands)
	for {
		select {
		case <-term:
			n.shutDown()
			return
		case command, ok := <-commands:
			switch {
			case !ok:
				cancel()
				wg.Wait()
				return
			case command == "settle":
				close(n.settle)
			case command == "stop":
				close(n.stop)
			}
		}
	}
}

func readCommands(commands chan<- string) {
	defer close(commands)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		commands <- lines.Text()
	}
}

// A node is the state of a node process.
type node struct {
	spec    nodeSpec
	router  *router.Router
	limiter *redis.Limiter
	settle  chan struct{}
	stop    chan struct{}

	publishing sync.Mutex   // held to publish; guards next
	next       [streams]int // numbers

	mu     sync.Mutex   // guards what follows
	member *router.Conn // joins the lobby and leaves it
	info   string       // of the member, or ""

	out sync.Mutex // guards standard output
}

func now() int64 { return time.Now().UnixNano() }

// print writes a line for the coordinator.
func (n *node) print(values ...any) {
	n.out.Lock()
	defer n.out.Unlock()
	_, _ = fmt.Fprintln(os.Stdout, values...)
}

// open handles the two connections of the node's own clients.
func (n *node) open(_ context.Context, c *router.Conn) error {
	if c.Identity().UserID == lobby {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.member = c
		return nil
	}
	for i := range rooms {
		if err := c.Subscribe(room(i), router.Present(n.spec.Name)); err != nil {
			return err
		}
	}
	return c.Subscribe(lobby, router.Present(n.spec.Name))
}

// receive records what a client receives.
func (n *node) receive(ctx context.Context, url string) error {
	conn, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	for {
		_, text, err := conn.Read(ctx)
		if err != nil {
			if ctx.Err() != nil || !n.router.Healthy() {
				return nil
			}
			return err
		}
		var m struct{ Payload note }
		if err := json.Unmarshal(text, &m); err != nil {
			return err
		}
		n.print("D", now(), m.Payload.Room, m.Payload.From, m.Payload.Num)
	}
}

// publish publishes on all rooms, and to the user, in turn.
func (n *node) publish(ctx context.Context) {
	for i := 0; n.sleep(ctx, n.stop, publishEvery); i++ {
		n.publishOne(i % streams)
	}
}

// publishOne publishes the next message of a room.
func (n *node) publishOne(r int) {
	n.publishing.Lock()
	defer n.publishing.Unlock()
	n.next[r]++
	m := note{n.spec.Name, r, n.next[r]}
	kind := "P"
	if err := n.send(m); err != nil {
		kind = "E"
	}
	n.print(kind, now(), r, m.Num)
}

func (n *node) send(m note) error {
	if m.Room == toUser {
		_, err := n.router.SendToUser("", user, m)
		return err
	}
	return n.router.Publish(room(m.Room), m)
}

func (n *node) consume(ctx context.Context) {
	for n.sleep(ctx, n.stop, consumeEvery) {
		sent := now()
		d, err := limit.Consume(ctx, n.limiter, limit.Key{"user"}, 1)
		switch {
		case err != nil:
			n.print("X", now(), sent)
		case d.Allowed:
			n.print("G", now(), sent)
		}
	}
}

// changePresence lets the member join the lobby and leave it in turn.
func (n *node) changePresence(ctx context.Context) {
	for i := 0; n.sleep(ctx, n.settle, churnEvery); i++ {
		n.mu.Lock()
		if n.member != nil && i%2 == 0 {
			n.info = fmt.Sprintf("%s-%d", n.spec.Name, i)
			_ = n.member.Subscribe(lobby, router.Present(n.info))
		} else if n.member != nil {
			n.info = ""
			n.member.Unsubscribe(lobby)
		}
		n.mu.Unlock()
	}
}

// watchPresence prints changes of the members that this node knows, and of its own ones.
func (n *node) watchPresence(ctx context.Context) {
	last := ""
	for n.sleep(ctx, nil, lookEvery) {
		n.mu.Lock()
		own := n.spec.Name
		if n.info != "" {
			own += "," + n.info
		}
		n.mu.Unlock()
		view := n.view(lobby)
		for i := range rooms {
			view += ";" + n.view(room(i))
		}
		if text := own + " " + view; text != last {
			last = text
			n.print("V", now(), own, view)
		}
	}
}

func (n *node) view(topic string) string {
	var infos []string
	for _, m := range n.router.Presence(topic) {
		infos = append(infos, m.Info)
	}
	slices.Sort(infos)
	return strings.Join(infos, ",")
}

// sleep returns false when ctx or stop ends.
func (n *node) sleep(ctx context.Context, stop <-chan struct{}, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-stop:
		return false
	case <-time.After(d):
		return true
	}
}

// shutDown publishes a burst and shuts down gracefully.
func (n *node) shutDown() {
	for i := range shutdownBurst {
		n.publishOne(i % streams)
	}
	n.publishing.Lock() // nothing is published anymore
	ctx, cancel := context.WithTimeout(context.Background(), shutdownWithin)
	defer cancel()
	err := n.router.Shutdown(ctx)
	n.print("Q", now(), err == nil, err)
}
