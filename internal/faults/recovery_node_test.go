//go:build unix

package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/router"
)

const (
	recoveryNodeEnv = "PENSTOCK_FAULTS_RECOVERY_NODE"
	attemptTimeout  = time.Second
)

// A nodeSpec configures a node process.
type nodeSpec struct {
	Redis      redistest.Address
	Durability broker.Durability // of topics that begin with "safe"
}

// A story is a publication. Its key is unique.
type story struct {
	Topic string `json:"topic"`
	Key   string `json:"key"`
	Begun int64  `json:"begun"` // Unix time in ns when its writer tried for the first time
}

// write is a call of a client that publishes a story, and written its answer.
type (
	write   struct{ story }
	written struct {
		Outcome outcome `json:"outcome"`
		Topic   string  `json:"topic"`
		Offset  uint64  `json:"offset"`
	}
)

func (story) MessageType() string   { return "STORY" }
func (write) MessageType() string   { return "WRITE" }
func (written) MessageType() string { return "WRITTEN" }

// An outcome is the result of an attempt to publish.
type outcome string

const (
	stored    outcome = "stored"
	notStored outcome = "not stored"
	unknown   outcome = "unknown"
)

func now() int64 { return time.Now().UnixNano() }

// newRecoveryRouter returns a router with the topics and the call of the recovery tests. Everything on a topic that begins with
// "full" or "safe" can be recovered; one that begins with "brief" loses what a node misses in about a quarter of a second.
func newRecoveryRouter(spec *nodeSpec) *router.Router {
	r := router.New(&router.Options{
		Broker: redis.NewBroker(spec.Redis.Client()),
		Logger: slog.New(slog.DiscardHandler),
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: req.URL.Path[1:]}, nil
		},
		Limits:   router.Limits{QueueMessages: 1 << 20, QueueBytes: 1 << 28, ConnsPerIP: router.Unlimited, HandshakesPerIP: router.Rate{PerSecond: router.Unlimited}},
		Timeouts: router.Timeouts{Call: 5 * time.Second, Ping: 3 * time.Second, Pong: 3 * time.Second, LameDuck: 300 * time.Millisecond},
	})
	topic := func(pattern string, h router.History, presence bool) {
		authorize := func(*router.Context, router.TopicMatch) error { return nil }
		router.Topic(r, pattern, &router.TopicOptions{History: h, Authorize: authorize, Presence: presence})
	}
	topic("full/{id}", router.History{Messages: 1_000_000}, true)
	topic("safe/{id}", router.History{Messages: 1_000_000, Durability: spec.Durability}, false)
	topic("brief/{id}", router.History{Messages: 16}, false)
	router.RPC(r, func(ctx *router.Context, m write) (written, error) {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		var p broker.Position
		answer := written{Outcome: notStored, Topic: m.Topic}
		switch err := r.Publish(m.Topic, m.story, router.IdempotencyKey(m.Key), router.Stored(attempt, &p)); {
		case err == nil:
			answer.Outcome, answer.Offset = stored, p.Offset
		case errors.CodeOf(err) == errors.OutcomeUnknown:
			answer.Outcome = unknown
		}
		return answer, nil
	})
	return r
}

// TestRecoveryNode is the main function of a node process, which prints its address. It ends with its standard input, or with
// SIGTERM after a graceful shutdown.
func TestRecoveryNode(t *testing.T) {
	text := os.Getenv(recoveryNodeEnv)
	if text == "" {
		t.Skip("only runs as a child process of other tests")
	}
	var spec nodeSpec
	require.NoError(t, json.Unmarshal([]byte(text), &spec))
	r := newRecoveryRouter(&spec)
	server := httptest.NewServer(r)
	defer server.Close()
	fmt.Println(server.Listener.Addr())

	term, end := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(term, syscall.SIGTERM)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(end)
	}()
	select {
	case <-term:
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.NoError(t, r.Shutdown(ctx))
	case <-end:
	}
}
