//go:build !js

package client_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// TestCodec_MustBeThatOfTheServer lets a client try until the server has its codec.
func TestCodec_MustBeThatOfTheServer(t *testing.T) {
	var supported atomic.Bool
	plain, withCodec := router.New(nil), router.New(&router.Options{Codecs: []router.Codec{cbor.New(nil)}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if supported.Load() {
			withCodec.ServeHTTP(w, req)
			return
		}
		plain.ServeHTTP(w, req)
	}))
	defer server.Close()
	failures := make(chan error, 100)
	c := client.New(strings.Replace(server.URL, "http", "ws", 1), &client.Options{
		Codec: cbor.New(nil), Backoff: client.Backoff{Min: time.Millisecond, Max: time.Millisecond}, Logger: slog.New(slog.DiscardHandler),
		OnState: func(state client.State, err error) {
			if state == client.Waiting {
				failures <- err
			}
		},
	})
	ctx := testContext(t)
	defer func() { require.NoError(t, c.Close(ctx)) }()
	connected := make(chan error, 1)
	go func() { connected <- c.Connect(ctx) }()
	for range 2 {
		err := <-failures
		assert.Equal(t, errors.FailedPrecondition, errors.CodeOf(err))
		assert.ErrorContains(t, err, "penstock.v1.cbor")
	}
	supported.Store(true)
	require.NoError(t, <-connected)
}

func TestCodec_SubprotocolsOfTheHeaderAreOfferedToo(t *testing.T) {
	s := startServer(t, &router.Options{
		Codecs: []router.Codec{cbor.New(nil)},
		Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(req)}, nil
		},
	})
	router.RPC(s.Router, func(ctx *router.Context, _ say) (said, error) { return said{ctx.Conn().Identity().UserID}, nil })
	s.start()
	c := s.connect(&client.Options{Codec: cbor.New(nil), Header: http.Header{"Sec-Websocket-Protocol": {"bearer.secret"}}})
	reply, err := client.Call[said](testContext(t), c, say{})
	require.NoError(t, err)
	assert.Equal(t, "secret", reply.Text)
}

// nameless is a codec that forgets its subprotocol.
type nameless struct{ client.Codec }

func (nameless) Subprotocol() string { return "" }

func TestCodec_PanicsWithoutSubprotocol(t *testing.T) {
	assert.PanicsWithValue(t, "client: the subprotocol of Options.Codec is empty; it must be an HTTP token", func() {
		client.New("ws://localhost", &client.Options{Codec: nameless{}})
	})
}
