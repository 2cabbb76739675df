//go:build unix

package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
)

const recoveryNodeEnv = "PENSTOCK_FAULTS_RECOVERY_NODE"

// What topics retain. Everything on a topic that begins with "full" or "safe" can be recovered; a topic
// that begins with "brief" loses what a node misses in about a quarter of a second. Publications on
// topics that begin with "safe" have the Durability of the run.
const (
	fullHistory  = 1_000_000
	briefHistory = 16
)

func retainedBy(topic string) int {
	if strings.HasPrefix(topic, "brief/") {
		return briefHistory
	}
	return fullHistory
}

// A recoveryNodeSpec configures a node process.
type recoveryNodeSpec struct {
	Node       nodeSpec
	Topics     []string
	Publishers int
	Interval   time.Duration // of each publisher
	Seed       uint64
}

// A nodeEvent is a line that a node process prints.
type nodeEvent struct {
	Kind      string // listen, begin, end, presence, idle, stopped, shutdown
	At        int64
	Topic     string
	Publisher string
	Number    int
	Outcome   outcome
	Epoch     string
	Offset    uint64
	Count     int
	Text      string
}

// write is a call of a client that publishes a story.
type write struct {
	Story story  `json:"story"`
	Key   string `json:"key"`
}

func (write) MessageType() string { return "WRITE" }

type written struct {
	Outcome outcome `json:"outcome"`
	Epoch   string  `json:"epoch"`
	Offset  uint64  `json:"offset"`
}

func (written) MessageType() string { return "WRITTEN" }

// newRecoveryRouter returns a router with the topics and the call of the recovery tests.
func newRecoveryRouter(spec *nodeSpec) *router.Router {
	r := router.New(&router.Options{
		Broker: redis.NewBroker(spec.client()),
		Logger: slog.New(slog.DiscardHandler),
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: req.URL.Path[1:]}, nil
		},
		Limits:   router.Limits{QueueMessages: 1 << 20, QueueBytes: 1 << 28}, // what a client has missed must fit
		Timeouts: router.Timeouts{Call: 5 * time.Second, Ping: 3 * time.Second, Pong: 3 * time.Second, LameDuck: 300 * time.Millisecond},
	})
	authorize := func(*router.Context, router.TopicMatch) error { return nil }
	router.Topic(r, "full/{id}", &router.TopicOptions{History: router.History{Messages: fullHistory}, Authorize: authorize, Presence: true})
	router.Topic(r, "safe/{id}", &router.TopicOptions{History: router.History{Messages: fullHistory, Durability: spec.Durability}, Authorize: authorize})
	router.Topic(r, "brief/{id}", &router.TopicOptions{History: router.History{Messages: briefHistory}, Authorize: authorize})
	router.RPC(r, func(ctx *router.Context, m write) (written, error) {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		o, p := publishStory(attempt, r, m.Story, m.Key)
		return written{o, p.Epoch, p.Offset}, nil
	})
	return r
}

func publishStory(ctx context.Context, r *router.Router, m story, key string) (outcome, broker.Position) {
	var p broker.Position
	err := r.Publish(m.Topic, m, router.IdempotencyKey(key), router.Stored(ctx, &p))
	return outcomeOf(err), p
}

// A recoveryNode is the state of a node process.
type recoveryNode struct {
	spec   recoveryNodeSpec
	router *router.Router
	out    sync.Mutex // guards standard output
}

func (n *recoveryNode) print(e nodeEvent) {
	e.At = now()
	text, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	n.out.Lock()
	defer n.out.Unlock()
	_, _ = fmt.Fprintln(os.Stdout, string(text))
}

// TestRecoveryNode is the main function of a node process. Its standard input has commands, a line
// each: "presence" and "idle" print the members of the first topic and the number of goroutines,
// "stop" ends the publishers. It ends with its standard input, or with SIGTERM after a graceful
// shutdown.
func TestRecoveryNode(t *testing.T) {
	text := os.Getenv(recoveryNodeEnv)
	if text == "" {
		t.Skip("only runs as a child process of other tests")
	}
	n := &recoveryNode{}
	require.NoError(t, json.Unmarshal([]byte(text), &n.spec))
	n.router = newRecoveryRouter(&n.spec.Node)
	server := httptest.NewServer(n.router)
	defer server.Close()
	goroutines := runtime.NumGoroutine()
	stop := make(chan struct{})
	var publishers sync.WaitGroup
	for i := range n.spec.Publishers {
		publishers.Go(func() { n.publisher(i).run(stop, n.spec.Interval) })
	}
	n.print(nodeEvent{Kind: "listen", Text: server.Listener.Addr().String(), Count: goroutines})

	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	commands := make(chan string)
	go readCommands(commands)
	for {
		select {
		case <-term:
			ctx, cancel := context.WithTimeout(t.Context(), 2*shutdownWithin)
			defer cancel()
			n.print(nodeEvent{Kind: "shutdown", Text: fmt.Sprint(n.router.Shutdown(ctx))})
			close(stop)
			publishers.Wait()
			return
		case command, ok := <-commands:
			switch {
			case !ok:
				return
			case command == "stop":
				close(stop)
				publishers.Wait()
				n.print(nodeEvent{Kind: "stopped"})
			case command == "presence":
				n.print(nodeEvent{Kind: "presence", Text: n.members(n.spec.Topics[0])})
			case command == "idle":
				n.print(nodeEvent{Kind: "idle", Count: runtime.NumGoroutine()})
			}
		}
	}
}

// publisher returns a publisher of this process.
func (n *recoveryNode) publisher(number int) *publisher {
	name := fmt.Sprint(n.spec.Node.Name, ".", number)
	return &publisher{
		name: name, topics: n.spec.Topics, rng: rand.New(rand.NewPCG(n.spec.Seed, uint64(number))),
		begin: func(topic string, id storyID, _ int64) {
			n.print(nodeEvent{Kind: "begin", Topic: topic, Publisher: id.publisher, Number: id.number})
		},
		end: func(topic string, id storyID, o outcome, p broker.Position) {
			n.print(nodeEvent{Kind: "end", Topic: topic, Publisher: id.publisher, Number: id.number, Outcome: o, Epoch: p.Epoch, Offset: p.Offset})
		},
		publish: func(ctx context.Context, m story, key string) (outcome, broker.Position) {
			return publishStory(ctx, n.router, m, key)
		},
	}
}

// members returns the users that are present in a topic.
func (n *recoveryNode) members(topic string) string {
	var users []string
	for _, m := range n.router.Presence(topic) {
		users = append(users, m.UserID)
	}
	slices.Sort(users)
	return strings.Join(users, ",")
}
