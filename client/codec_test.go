//go:build !js

package client_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/codec/protobuf"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/chatpb"
	"github.com/penstock-go/penstock/router"
)

// noContent is a message without fields, which has no payload in any format.
type noContent struct{}

func (noContent) MessageType() string { return "NO_CONTENT" }

// startCodecServer returns a server with both codecs, which answers Say as its Room demands.
func startCodecServer(t *testing.T) *testServer {
	t.Helper()
	s := startServer(t, &router.Options{
		Codecs:       []router.Codec{cbor.New(nil), protobuf.Codec{}},
		Resume:       router.ResumeOptions{Within: time.Minute},
		Authenticate: func(*http.Request) (router.Identity, error) { return router.Identity{UserID: "ann"}, nil },
	})
	mayRead := func(*router.Context, router.TopicMatch) error { return nil }
	router.Topic(s.Router, "room/{id}", &router.TopicOptions{Authorize: mayRead, History: router.History{Messages: 100}})
	router.Topic(s.Router, "plain/{id}", &router.TopicOptions{Authorize: mayRead})
	router.On(s.Router, func(ctx *router.Context, m *chatpb.Said) error { return ctx.Publish("plain/a", m) })
	router.On(s.Router, func(ctx *router.Context, _ noContent) error { return ctx.Send(noContent{}) })
	router.RPC(s.Router, func(ctx *router.Context, m *chatpb.Say) (*chatpb.Said, error) {
		reply := &chatpb.Said{Text: m.GetText(), Signature: []byte{0, 255}}
		switch m.GetRoom() {
		case "fail":
			return nil, &errors.Error{Code: errors.NotFound, Message: "there is none", Details: map[string]any{"room": m.GetText()}}
		case "empty":
			return &chatpb.Said{}, nil
		case "progress":
			for i := range 3 {
				if err := ctx.Progress(&chatpb.Said{Text: fmt.Sprint(i)}); err != nil {
					return nil, err
				}
			}
		case "confirm":
			return router.Call[*chatpb.Said](ctx, ctx.Conn(), &chatpb.Say{Text: m.GetText()})
		case "publish":
			err := s.Publish("room/a", reply, router.Stored(ctx, nil))
			return reply, err
		}
		return reply, nil
	})
	s.start()
	return s
}

func forEachCodec(t *testing.T, test func(t *testing.T, codec client.Codec)) {
	t.Helper()
	for _, codec := range []client.Codec{nil, cbor.New(nil), protobuf.Codec{}} {
		t.Run(fmt.Sprintf("%T", codec), func(t *testing.T) { test(t, codec) })
	}
}

func ask(ctx context.Context, c *client.Client, room, text string) (*chatpb.Said, error) {
	return client.Call[*chatpb.Said](ctx, c, &chatpb.Say{Room: room, Text: text, Mentions: []int64{1, 1 << 40}})
}

func TestCodec_CallsAndEvents(t *testing.T) {
	forEachCodec(t, func(t *testing.T, codec client.Codec) {
		s, ctx := startCodecServer(t), testContext(t)
		failures := make(chan error, 1)
		c := s.connect(&client.Options{Codec: codec, OnError: func(_ string, err error) { failures <- err }})
		reply, err := ask(ctx, c, "echo", "hä")
		require.NoError(t, err)
		assert.Equal(t, "hä", reply.GetText())
		assert.Equal(t, []byte{0, 255}, reply.GetSignature())

		reply, err = ask(ctx, c, "empty", "")
		require.NoError(t, err)
		assert.NotNil(t, reply)

		_, err = ask(ctx, c, "fail", "x")
		e, ok := errors.AsType[*errors.Error](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, errors.NotFound, e.Code)
		assert.Equal(t, map[string]any{"room": "x"}, e.Details)

		var progress []string
		for item, err := range client.StreamReply[*chatpb.Said](ctx, c, &chatpb.Say{Room: "progress", Text: "end"}, &reply) {
			require.NoError(t, err)
			progress = append(progress, item.GetText())
		}
		assert.Equal(t, []string{"0", "1", "2"}, progress)
		assert.Equal(t, "end", reply.GetText())

		client.Handle(c, func(_ context.Context, m *chatpb.Say) (*chatpb.Said, error) {
			if m.GetText() == "no" {
				return nil, errors.Errorf(errors.PermissionDenied, "I do not want to")
			}
			return &chatpb.Said{Text: "I confirm " + m.GetText()}, nil
		})
		reply, err = ask(ctx, c, "confirm", "this")
		require.NoError(t, err)
		assert.Equal(t, "I confirm this", reply.GetText())
		_, err = ask(ctx, c, "confirm", "no")
		assert.Equal(t, errors.PermissionDenied, errors.CodeOf(err))
		err = client.Send(ctx, c, unknownEvent{&chatpb.Said{Text: "?"}})
		if err == nil { // the rejection has arrived after Send has returned
			err = <-failures
		}
		assert.Equal(t, errors.Unimplemented, errors.CodeOf(err))

		received := make(chan string, 10)
		client.On(c, func(m noContent, _ *client.Received) { received <- fmt.Sprint(m) })
		require.NoError(t, client.Send(ctx, c, noContent{}))
		assert.Equal(t, "{}", <-received)
	})
}

// unknownEvent has no handler.
type unknownEvent struct{ *chatpb.Said }

func (unknownEvent) MessageType() string { return "UNKNOWN" }

// TestCodec_InvalidMessagesAreLogged lets a server send what is no message of the format.
func TestCodec_InvalidMessagesAreLogged(t *testing.T) {
	head := []byte(`{"type":"SAID","meta":{"timestamp":1}}`)
	frame := func(length int, rest []byte) []byte {
		return append(binary.BigEndian.AppendUint16(nil, uint16(length)), rest...)
	}
	invalid := [][]byte{{}, {0}, frame(100, head), frame(5, head), frame(0, nil), frame(len(head), append(bytes.Clone(head), 0xff))}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ws, err := websocket.Accept(w, req, &websocket.AcceptOptions{Subprotocols: []string{cbor.Subprotocol}})
		if !assert.NoError(t, err) {
			return
		}
		_, hello, err := ws.Read(req.Context())
		assert.NoError(t, err)
		_, rest, _ := strings.Cut(string(hello), `"correlationId":"`)
		id, _, _ := strings.Cut(rest, `"`)
		welcome := []byte(`{"type":"$ws:welcome","meta":{"timestamp":1,"correlationId":"` + id + `"}}`)
		for _, message := range append(append([][]byte{frame(len(welcome), append(welcome, `{"connId":"c1"}`...))}, invalid...), frame(len(head), append(bytes.Clone(head), "\xa1\x64text\x62hi"...))) {
			assert.NoError(t, ws.Write(req.Context(), websocket.MessageBinary, message))
		}
		assert.NoError(t, ws.Write(req.Context(), websocket.MessageText, []byte(`{"type":"SAID","meta":{"timestamp":1},"payload":{"text":"JSON"}}`)))
		_, _, _ = ws.Read(req.Context())
	}))
	defer server.Close()
	var logged atomic.Int64
	reported := make(chan error, 1)
	c := client.New(strings.Replace(server.URL, "http", "ws", 1), &client.Options{
		Codec: cbor.New(nil), Logger: slog.New(counting{slog.DiscardHandler, &logged}),
		OnError: func(_ string, err error) { reported <- err },
	})
	ctx := testContext(t)
	received := make(chan string, 1)
	client.On(c, func(m said, _ *client.Received) { received <- m.Text })
	require.NoError(t, c.Connect(ctx))
	assert.Equal(t, "hi", <-received)
	assert.Equal(t, "JSON", <-received)
	assert.EqualValues(t, len(invalid)-1, logged.Load())
	assert.Equal(t, errors.Internal, errors.CodeOf(<-reported)) // of the last one, whose payload is invalid
	require.NoError(t, c.Close(ctx))
}

// counting counts warnings.
type counting struct {
	slog.Handler

	count *atomic.Int64
}

func (counting) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (h counting) Handle(context.Context, slog.Record) error {
	h.count.Add(1)
	return nil
}
