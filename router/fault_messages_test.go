package router_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/tracing"
)

// failingMessage is a message with one method that fails. The methods of a nil pointer also fail.
type failingMessage struct {
	at    string
	fault func()
}

func (m *failingMessage) trigger(at string) {
	if m.at == at {
		m.fault()
	}
}

func (m *failingMessage) MessageType() string   { m.trigger("MessageType"); return "FAILING" }
func (m *failingMessage) ConflationKey() string { m.trigger("ConflationKey"); return "key" }

// replyWith registers a handler of Faulty whose reply a middleware replaces with m.
func replyWith(h *harness, m router.Message) {
	router.RPC(h.router, func(*router.Context, Faulty) (Echoed, error) { return Echoed{}, nil }).
		Use(func(next router.Handler) router.Handler {
			return func(ctx *router.Context) error {
				err := next(ctx)
				ctx.SetReply(m)
				return err
			}
		})
}

// TestFault_PublishReturnsErrorOutsideHandlers calls the router from a goroutine of the application,
// where the router recovers no panics.
func TestFault_PublishReturnsErrorOutsideHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &harness{T: t}
		h.start(nil)
		h.conn = h.dial()
		synctest.Wait()
		for _, m := range []router.Message{nil, (*Say)(nil), &failingMessage{"MessageType", func() { panic("fault") }}, PanickingJSON{}} {
			assert.Error(t, h.router.Publish("room", m))
			assert.Error(t, h.router.Publish("room", m, router.Local()))
			_, err := h.router.SendToUser("", faultyUser, m)
			assert.Error(t, err)
			for c := range h.router.Conns() {
				assert.Error(t, c.Send(m))
			}
		}
		h.checkIsolation(true)
	})
}

// A faultyBroker is a broker and session whose method at fails.
type faultyBroker struct {
	harness *harness

	mu sync.Mutex
	at string
}

func (b *faultyBroker) set(at string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = at
}

func (b *faultyBroker) trigger(at string) {
	b.mu.Lock()
	fails := b.at == at
	b.mu.Unlock()
	if fails {
		b.harness.fault()
	}
}

func (b *faultyBroker) Connect(node broker.Callbacks) broker.Node {
	b.harness.node = node
	b.trigger("Connect")
	if b.at == "nil" {
		return nil
	}
	return b
}

func (b *faultyBroker) Name() string { b.trigger("Name"); return "one" }

func (b *faultyBroker) Nodes() (others []string, all bool) {
	b.trigger("Nodes")
	return nil, true
}

func (b *faultyBroker) Subscribe(topic string) {
	if topic[0] != 0 { // which New subscribes to
		b.trigger("Subscribe")
	}
}

func (b *faultyBroker) Unsubscribe(string)           { b.trigger("Unsubscribe") }
func (b *faultyBroker) Publish(string, []byte) error { b.trigger("Publish"); return nil }
func (b *faultyBroker) Join(string, string, string)  { b.trigger("Join") }
func (b *faultyBroker) Leave(string, string)         { b.trigger("Leave") }
func (b *faultyBroker) Track(string)                 { b.trigger("Track") }
func (b *faultyBroker) Untrack(string)               { b.trigger("Untrack") }
func (b *faultyBroker) Close(context.Context) error  { b.trigger("Close"); return nil }

// fillQueue fills the send queue of a connection until messages are dropped and the hooks are
// called, and then receives what is left.
func (h *harness) fillQueue() {
	h.conn = h.dial()
	synctest.Wait()
	h.conn.Pause()
	for c := range h.router.Conns() {
		for range 10 {
			if c.Identity().UserID == faultyUser {
				_ = c.Send(Nothing{})
			}
		}
	}
	synctest.Wait()
	h.conn.Resume()
	synctest.Wait()
	for h.conn.Pending() > 0 {
		h.conn.Next()
	}
}

// joinAndLeave makes a connection join a topic and leave it.
func (h *harness) joinAndLeave() {
	h.conn = h.dial()
	synctest.Wait()
	for c := range h.router.Conns() {
		require.NoError(h, c.Subscribe("room", router.Present("")))
		c.Unsubscribe("room")
	}
	synctest.Wait()
}

// A faultyCodec is JSON with a method that fails for Faulty and its reply. Without a harness, none does.
type faultyCodec struct {
	harness *harness
	at      string
}

func (*faultyCodec) Subprotocol() string { return "faulty.v1" }

func (c *faultyCodec) Marshal(v any) ([]byte, error) {
	if c.at == "Marshal" {
		c.harness.fault()
	}
	return json.Marshal(v)
}

func (c *faultyCodec) Unmarshal(payload []byte, v any) error {
	if _, ok := v.(*Faulty); ok && c.at == "Unmarshal" {
		c.harness.fault()
	}
	return json.Unmarshal(payload, v)
}

// A faultyTracer fails for the faulty user.
type faultyTracer struct {
	recordingTracer

	harness *harness
}

func (f *faultyTracer) Start(ctx context.Context, op tracing.Operation) context.Context {
	if op.UserID == faultyUser {
		f.harness.fault()
	}
	return f.recordingTracer.Start(ctx, op)
}

// A hookedHandler is a slog.Handler that passes each record to a function.
type hookedHandler struct{ handle func(slog.Record) }

func (h *hookedHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *hookedHandler) Handle(_ context.Context, rec slog.Record) error {
	h.handle(rec)
	return nil
}

func (h *hookedHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *hookedHandler) WithGroup(string) slog.Handler      { return h }
