package router_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/tracing"
)

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
