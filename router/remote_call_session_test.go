package router_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestCallConn_ClientIsAway calls a client that has lost its connection during the call, and then
// by the ID of that connection and that of the one on which it has resumed its session, on another
// node.
func TestCallConn_ClientIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		var nodes []*router.Router
		for range 3 {
			nodes = append(nodes, userRouter(router.Options{Broker: b, Resume: router.ResumeOptions{Within: time.Minute}}))
		}
		client, c := dialUser(t, nodes[1], "ann")
		client.SendText(`{"type":"$ws:hello","payload":{"session":true}}`)
		token := routertest.Receive[routertest.Welcome](client).Session.Token
		done := confirmByID(t.Context(), nodes[0], c.ID())
		client.Next()
		client.Abort()
		assert.Equal(t, &errors.Error{Code: errors.Unavailable, Message: "connection is closed"}, (<-done).err)
		synctest.Wait()
		assert.Equal(t, errors.NotFound, errors.CodeOf((<-confirmByID(t.Context(), nodes[0], c.ID())).err))
		conns, err := nodes[0].UserConns(t.Context(), "", "ann")
		require.NoError(t, err)
		assert.Empty(t, conns.Conns)

		client, resumed := dialUser(t, nodes[2], "ann")
		client.SendText(`{"type":"$ws:resume","payload":{"token":"` + token + `"}}`)
		client.Next()
		routertest.Handle(client, func(Confirm) (Confirmed, error) { return Confirmed{Yes: true}, nil })
		assert.NoError(t, (<-confirmByID(t.Context(), nodes[0], resumed.ID())).err)
		assert.Equal(t, errors.NotFound, errors.CodeOf((<-confirmByID(t.Context(), nodes[0], c.ID())).err))
		for _, n := range nodes {
			require.NoError(t, n.Shutdown(t.Context()))
		}
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
