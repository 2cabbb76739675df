package router_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// userRouter returns a router whose users are those of their tokens.
func userRouter(opts router.Options) *router.Router {
	opts.Authenticate = byUser
	return router.New(&opts)
}

func TestUserConns_WithoutAnswers(t *testing.T) {
	for name, tt := range map[string]struct {
		fault  func(*enginetest.Faults) // of the other nodes
		silent int
	}{
		"lost":                 {lossy, 2},
		"they cannot publish":  {func(f *enginetest.Faults) { f.FailPublish = true }, 2},
		"they receive nothing": {func(f *enginetest.Faults) { f.Disconnect = true }, 2},
	} {
		runSynctest(t, name, func(t *testing.T) {
			_, nodes := netNodes(t, 3, router.Options{})
			for _, n := range nodes {
				dialUser(t, n.Router, "ann")
			}
			nodes[1].update(tt.fault)
			nodes[2].update(tt.fault)
			start := time.Now()
			got, err := nodes[0].UserConns(t.Context(), "", "ann")
			assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
			assert.ErrorContains(t, err, nodes[1].Name())
			assert.ErrorContains(t, err, nodes[2].Name())
			assert.ElementsMatch(t, []string{nodes[1].Name(), nodes[2].Name()}, got.Silent)
			assert.Len(t, got.Conns, 1)
			assert.Equal(t, 1, got.Total)
			assert.LessOrEqual(t, time.Since(start), 5*time.Second)
		})
	}
}

func TestUserConns_StartedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetNode(t, enginetest.New(), router.Options{})
		dialUser(t, n.Router, "ann")
		got, err := n.UserConns(t.Context(), "", "ann")
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err), "it does not know yet whether there are others")
		assert.Len(t, got.Conns, 1)
		time.Sleep(2 * time.Second)
		_, err = n.UserConns(t.Context(), "", "ann")
		assert.NoError(t, err)
	})
}

// TestUserConns_Fields compares all that is known of a connection on its node and on another one.
func TestUserConns_Fields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		opts := router.Options{Broker: b, Subprotocols: []string{"chat.v1"}}
		one, two := userRouter(opts), userRouter(opts)
		time.Sleep(time.Second)
		start := time.Now()
		routertest.Dial(t, one, routertest.Token("ann"), routertest.RemoteAddr("192.0.2.1:1"), routertest.Header("Sec-WebSocket-Protocol", "chat.v1"))
		synctest.Wait()
		time.Sleep(time.Second)
		routertest.Dial(t, one, routertest.Token("ann"), routertest.RemoteAddr("[2001:db8::1]:1"))
		routertest.Dial(t, one, routertest.Token("bob"))
		synctest.Wait()
		for _, r := range []*router.Router{one, two} {
			got, err := r.UserConns(t.Context(), "", "ann")
			require.NoError(t, err)
			require.Len(t, got.Conns, 2)
			for i, c := range got.Conns {
				assert.NotNil(t, one.Conn(c.ConnID))
				got.Conns[i].ConnID = ""
				assert.WithinDuration(t, start.Add(time.Duration(i)*time.Second), c.OpenedAt, time.Microsecond)
				got.Conns[i].OpenedAt = time.Time{}
			}
			assert.Equal(t, router.UserConns{Total: 2, Conns: []router.UserConn{
				{NodeID: one.NodeID(), IP: netip.MustParseAddr("192.0.2.1"), Subprotocol: "chat.v1"},
				{NodeID: one.NodeID(), IP: netip.MustParseAddr("2001:db8::1")},
			}}, got)
			got, err = r.UserConns(t.Context(), "", "")
			require.NoError(t, err)
			assert.Zero(t, got)
			got, err = r.UserConns(t.Context(), "other tenant", "ann")
			require.NoError(t, err)
			assert.Zero(t, got)
		}
	})
}
