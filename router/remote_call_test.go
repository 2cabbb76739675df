package router_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestCallConn_AnswersAreThoseOfCall compares what a call to a client of another node returns with
// what Call returns on the node of the client.
func TestCallConn_AnswersAreThoseOfCall(t *testing.T) {
	long := strings.Repeat("é", 2000)
	for name, text := range map[string]string{
		"reply":           answer("ID", "CONFIRMED", `{"yes":true}`),
		"large reply":     answer("ID", "CONFIRMED", `{"yes":true,"more":"`+strings.Repeat("x", 50_000)+`"}`),
		"error":           answer("ID", "RPC_ERROR", `{"code":"NOT_FOUND","message":"no","details":{"a":[1]},"retryable":true,"retryAfterMs":1500}`),
		"long message":    answer("ID", "RPC_ERROR", `{"code":"ABORTED","message":"x`+long+`"}`),
		"large details":   answer("ID", "RPC_ERROR", `{"code":"ABORTED","details":{"a":"`+long+long+`"}}`),
		"internal":        answer("ID", "RPC_ERROR", `{"code":"INTERNAL","message":"secret"}`),
		"error, no code":  answer("ID", "RPC_ERROR", `{"message":"no"}`),
		"other type":      answer("ID", "ECHO", `{}`),
		"wrong field":     answer("ID", "CONFIRMED", `{"yes":7}`),
		"no payload":      `{"type":"CONFIRMED","meta":{"correlationId":"ID"}}`,
		"Validate":        answer("ID", "CONFIRMED", `{"By":"ann"}`),
		"Validate panics": answer("ID", "CONFIRMED", `{"By":"panic"}`),
		"broken JSON":     `{"type":"CONFIRMED","meta":{"correlationId":"ID"},"payload":{"yes":tru}}`,
		"many elements":   answer("ID", "CONFIRMED", `{"yes":true,"list":[`+strings.Repeat("1,", 11_000)+`1]}`),
	} {
		runSynctest(t, name, func(t *testing.T) {
			_, nodes := netNodes(t, 2, *discardLogs(router.Options{}))
			client, c := dialUser(t, nodes[1].Router, "ann")
			local := confirm(t.Context(), c)
			call := client.Next()
			client.SendText(strings.Replace(text, `"ID"`, fmt.Sprintf("%q", call.Meta.CorrelationID), 1))
			want := <-local
			remote := confirmByID(t.Context(), nodes[0].Router, c.ID())
			call = client.Next()
			client.SendText(strings.Replace(text, `"ID"`, fmt.Sprintf("%q", call.Meta.CorrelationID), 1))
			got := <-remote
			assert.Equal(t, want.reply, got.reply)
			assertSameError(t, want.err, got.err)
			assert.Zero(t, got.after)
		})
	}
}

// assertSameError compares the public parts of two errors and the texts of their private parts.
func assertSameError(t *testing.T, want, got error) {
	t.Helper()
	if want == nil {
		require.NoError(t, got)
		return
	}
	require.Error(t, got)
	assert.Equal(t, want.Error(), got.Error())
	if e, ok := errors.AsType[*errors.Error](want); ok {
		public := *e
		public.Err = nil
		other, _ := errors.AsType[*errors.Error](got)
		require.NotNil(t, other)
		copied := *other
		copied.Err = nil
		assert.Equal(t, public, copied)
		return
	}
	assert.Equal(t, want, got)
}

func TestCallConn_MessageIsThatOfCall(t *testing.T) {
	for name, m := range map[string]router.Message{"with payload": Confirm{"delete?"}, "without fields": Empty{}, "quoted": Confirm{`}"` + "\u2028"}} {
		runSynctest(t, name, func(t *testing.T) {
			_, nodes := netNodes(t, 2, router.Options{})
			client, c := dialUser(t, nodes[1].Router, "ann")
			client.Greet() // so that the call has a timeout
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var texts [2]string
			for i, call := range []func() error{
				func() error { _, err := router.Call[Confirmed](ctx, c, m); return err },
				func() error { _, err := router.CallConn[Confirmed](ctx, nodes[0].Router, c.ID(), m); return err },
			} {
				done := make(chan error, 1)
				go func() { done <- call() }()
				frame := client.Next()
				texts[i] = strings.Replace(frame.Text, frame.Meta.CorrelationID, "ID", 1)
				client.Answer(frame, Confirmed{Yes: true})
				require.NoError(t, <-done)
			}
			assert.Contains(t, texts[0], `"timeoutMs":10000`)
			assert.Equal(t, texts[0], texts[1])
		})
	}
}

// Empty is a call without fields.
type Empty struct{}

func (Empty) MessageType() string { return "EMPTY" }

// TestCallConn_OnTheNodeItself calls clients of a router with other nodes and of one without.
func TestCallConn_OnTheNodeItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, opts := range []*router.Options{nil, {Broker: memory.NewBroker()}} {
			r := router.New(opts)
			client, c := dialUser(t, r, "")
			routertest.Handle(client, func(Confirm) (Confirmed, error) { return Confirmed{Yes: true}, nil })
			got := <-confirmByID(t.Context(), r, c.ID())
			require.NoError(t, got.err)
			assert.True(t, got.reply.Yes)
			c.Close(4000, "")
			synctest.Wait()
			assert.Equal(t, errors.NotFound, errors.CodeOf((<-confirmByID(t.Context(), r, c.ID())).err))
			assert.Equal(t, errors.NotFound, errors.CodeOf((<-confirmByID(t.Context(), r, "")).err))
		}
	})
}

// TestCallConn_NoConnection asks for connections that do not exist, and counts the packets that are
// sent.
func TestCallConn_NoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := netNodes(t, 3, router.Options{})
		client, c := dialUser(t, nodes[1].Router, "ann")
		other, gone := dialUser(t, nodes[2].Router, "ann")
		client.Close()
		synctest.Wait()
		for name, id := range map[string]string{
			"closed": c.ID(), "invented": strings.Repeat("A", 32), "short": "x", "long": strings.Repeat(c.ID(), 1000), "empty": "",
		} {
			got := <-confirmByID(t.Context(), nodes[0].Router, id)
			assert.Equal(t, &errors.Error{Code: errors.NotFound, Message: "no node has this connection"}, got.err, name)
			assert.Zero(t, got.after)
		}
		require.NoError(t, nodes[2].Shutdown(t.Context()))
		other.Closed()
		synctest.Wait()
		assert.Equal(t, errors.NotFound, errors.CodeOf((<-confirmByID(t.Context(), nodes[0].Router, gone.ID())).err), "its node has left")
		nodes[0].isIdle(t)
	})
}

func TestCallConn_NodeThatDoesNotKnowTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, nodes := netNodes(t, 1, router.Options{})
		_, c := dialUser(t, nodes[0].Router, "ann")
		started := newNetNode(t, network, router.Options{})
		assert.Equal(t, errors.Unavailable, errors.CodeOf((<-confirmByID(t.Context(), started.Router, c.ID())).err), "it has just started")
		_, own := dialUser(t, started.Router, "ann")
		own.Close(4000, "")
		synctest.Wait()
		assert.Equal(t, errors.NotFound, errors.CodeOf((<-confirmByID(t.Context(), started.Router, own.ID())).err), "the connection was one of its own")
	})
}

func TestCallConn_Limits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := netNodes(t, 2, router.Options{Limits: router.Limits{Concurrency: 2, QueueBytes: 1000}})
		ann, c := dialUser(t, nodes[1].Router, "ann")
		_, d := dialUser(t, nodes[1].Router, "bob")
		var open []<-chan outcome
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			open = append(open, confirmByID(ctx, nodes[0].Router, c.ID()))
		}
		synctest.Wait()
		got := <-confirmByID(ctx, nodes[0].Router, c.ID())
		assert.Equal(t, &router.LimitExceeded{Kind: router.LimitConcurrency, Option: "router.Limits.Concurrency", Observed: 3, Limit: 2}, got.err, "Limits.Concurrency of its node")
		for range 63 {
			_, other := dialUser(t, nodes[1].Router, "other")
			open = append(open, confirmByID(ctx, nodes[0].Router, other.ID()), confirmByID(ctx, nodes[0].Router, other.ID()))
		}
		synctest.Wait()
		want := &router.LimitExceeded{Kind: router.LimitConcurrency, Option: "router.Limits.Concurrency", Observed: 129, Limit: 128}
		assert.Equal(t, want, (<-confirmByID(ctx, nodes[0].Router, d.ID())).err, "64 times Limits.Concurrency of the caller")
		_, err := nodes[0].UserConns(ctx, "", "ann")
		assert.Equal(t, want, err)
		for reply := range router.CallUser[Confirmed](ctx, nodes[0].Router, "", "ann", Confirm{}) {
			assert.Equal(t, want, reply.Err)
		}
		cancel()
		for _, done := range open {
			assert.Equal(t, context.Canceled, (<-done).err)
		}
		_, err = router.CallConn[Confirmed](t.Context(), nodes[0].Router, c.ID(), Confirm{strings.Repeat("x", 1000)})
		limit, _ := errors.AsType[*router.LimitExceeded](err)
		require.NotNil(t, limit)
		assert.Equal(t, router.LimitQueue, limit.Kind)
		assert.Equal(t, errors.Never, limit.RetryAfter)
		_, err = router.CallConn[Confirmed](t.Context(), nodes[0].Router, c.ID(), broken{})
		assert.Equal(t, errors.Internal, errors.CodeOf(err))
		_, err = router.CallConn[*Confirmed](t.Context(), nodes[0].Router, c.ID(), Confirm{})
		assert.Equal(t, errors.Internal, errors.CodeOf(err), "replies are values")
		synctest.Wait()
		assert.Equal(t, 2, ann.Pending(), "calls")
	})
}

// broken is a message that cannot be encoded.
type broken struct{ F func() }

func (broken) MessageType() string { return "BROKEN" }

// TestCallConn_Codecs calls clients in several formats from a node that has these formats in
// another order, and from nodes that do not have all of them.
func TestCallConn_Codecs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		a1, a2 := newCountingCodec("a.v1"), newCountingCodec("a.v1")
		owner := newCodecNode(b, cbor.New(nil), a1)
		caller := newCodecNode(b, a2, cbor.New(nil))
		jsonOnly := newCodecNode(b)
		for name, tt := range map[string]struct {
			opts []routertest.Option
			code errors.Code // of the node that knows JSON only
		}{
			"JSON": {nil, ""},
			"cbor": {[]routertest.Option{routertest.Codec(cbor.New(nil))}, errors.Internal},
			"a.v1": {[]routertest.Option{routertest.Codec(a1)}, errors.Internal},
		} {
			client := dialSession(t, owner, "ann", tt.opts...)
			id := client.conn.ID()
			routertest.Handle(client.Conn, func(m Confirm) (Confirmed, error) { return Confirmed{Yes: m.Question == "delete?"}, nil })
			got := <-confirmByID(t.Context(), caller, id)
			require.NoError(t, got.err, name)
			assert.True(t, got.reply.Yes, name)
			got = <-confirmByID(t.Context(), jsonOnly, id)
			assert.Equal(t, tt.code, errors.CodeOf(got.err), "%s: %v", name, got.err)
		}

		failure := "too complex"
		a2.marshalError.Store(&failure) // for one format of the caller
		var codes []errors.Code
		for reply := range router.CallUser[Confirmed](t.Context(), caller, "", "ann", Confirm{"delete?"}) {
			codes = append(codes, errors.CodeOf(reply.Err))
		}
		assert.ElementsMatch(t, []errors.Code{"", "", errors.Internal}, codes)
	})
}

// TestCallConn_NodeIsDrained calls clients of a node that shuts down: they are served until they
// are closed.
func TestCallConn_NodeIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, nodes := netNodes(t, 2, router.Options{})
		client, c := dialUser(t, nodes[1].Router, "ann")
		client.Greet()
		down := make(chan error, 1)
		go func() { down <- nodes[1].Shutdown(context.Background()) }()
		time.Sleep(time.Second)
		assert.Equal(t, "$ws:goaway", client.Next().Type)
		routertest.Handle(client, func(Confirm) (Confirmed, error) { return Confirmed{Yes: true}, nil })
		assert.NoError(t, (<-confirmByID(t.Context(), nodes[0].Router, c.ID())).err)
		require.NoError(t, <-down)
		synctest.Wait()
		assert.Equal(t, errors.NotFound, errors.CodeOf((<-confirmByID(t.Context(), nodes[0].Router, c.ID())).err))
	})
}
