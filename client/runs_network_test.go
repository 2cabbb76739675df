//go:build !js

package client_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// A network is one without delays that can be down.
type network struct {
	*delayedNetwork

	fail atomic.Bool // no client can connect
}

func newNetwork() *network {
	return &network{delayedNetwork: newDelayedNetwork(0)}
}

func (n *network) dial(ctx context.Context, protocol, addr string) (net.Conn, error) {
	if n.fail.Load() {
		return nil, errors.New("the network is down")
	}
	return n.delayedNetwork.dial(ctx, protocol, addr)
}

// connect returns a client that is closed when the test ends.
func (n *network) connect(t *testing.T, codec client.Codec) *client.Client {
	httpClient := &http.Client{Transport: &http.Transport{DialContext: n.dial}}
	c := client.New("ws://example.com/", &client.Options{HTTPClient: httpClient, Codec: codec, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { require.NoError(t, c.Close(context.Background())) })
	return c
}

func newRouter() *router.Router {
	return router.New(&router.Options{Codecs: []router.Codec{cbor.New(nil)}, Logger: slog.New(slog.DiscardHandler)})
}

// withRuns adds runs of tokens to a router. Clients may do everything except with answer/secret.
func withRuns(r *router.Router, merge func(a, b token) (token, bool)) *run.Runs[token] {
	authorize := func(_ *router.Context, _ run.Action, topic run.Topic) error {
		if topic.Value("chat") == "secret" {
			return errors.Errorf(errors.PermissionDenied, "it is secret")
		}
		return nil
	}
	return run.New(r, "answer/{chat}", &run.Options[token]{Merge: merge, Authorize: authorize, ShutdownGrace: time.Millisecond})
}

// inVirtualTime calls f with a client of a router, and with its runs.
func inVirtualTime(t *testing.T, merge func(a, b token) (token, bool), f func(t *testing.T, n *network, c *client.Client, rs *run.Runs[token])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, n := newRouter(), newNetwork()
		rs := withRuns(r, merge)
		_, closeAll := n.serve(r)
		t.Cleanup(closeAll)
		f(t, n, n.connect(t, nil), rs)
	})
}
