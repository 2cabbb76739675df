package router_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A view holds the members that a client knows. It fails the test if a change does not fit.
type view struct {
	t       *testing.T
	members map[string]router.Member
}

func newView(t *testing.T, members []router.Member) *view {
	v := &view{t, map[string]router.Member{}}
	for _, m := range members {
		v.members[m.ConnID] = m
	}
	require.Len(t, v.members, len(members))
	return v
}

// receive applies the changes that have arrived, and returns the number of messages.
func (v *view) receive(c *routertest.Conn) (messages int) {
	for ; c.Pending() > 0; messages++ {
		change := routertest.ReceivePresence(c)
		for _, m := range change.Left {
			require.Equal(v.t, v.members[m.ConnID], m, "only members leave")
			delete(v.members, m.ConnID)
		}
		for _, m := range change.Joined {
			require.NotContains(v.t, v.members, m.ConnID, "only others join")
			v.members[m.ConnID] = m
		}
	}
	return messages
}

// TestPresenceFeed_ViewsConverge lets clients of two nodes join, leave, ask for presence and
// disconnect at random, and compares what each client knows with Presence.
func TestPresenceFeed_ViewsConverge(t *testing.T) {
	for seed := range testscale.Tiers[uint64](3, 8, 20) {
		runSynctest(t, fmt.Sprint("seed ", seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test needs the same numbers again
			b := memory.NewBroker()
			nodes := []*node{newPresenceNode(b), newPresenceNode(b)}
			conns, views := make([]*routertest.Conn, 12), map[*routertest.Conn]*view{}
			for i := range conns {
				conns[i] = nodes[i%2].dial(t, fmt.Sprint("user", i))
			}
			for range 400 {
				i := rnd.IntN(len(conns))
				c := conns[i]
				switch rnd.IntN(8) {
				case 0, 1:
					c.Send(Join{"room/go"})
				case 2:
					c.Send(Subscribe{"room/go"})
				case 3:
					routertest.Unsubscribe(c, "room/go")
					if v := views[c]; v != nil {
						v.receive(c)
						delete(views, c)
					}
				case 4, 5:
					members := routertest.Subscribe(c, "room/go")
					if v := views[c]; v != nil {
						v.receive(c) // what preceded the answer
					}
					views[c] = newView(t, members)
				case 6:
					c.Abort()
					delete(views, c)
					conns[i] = nodes[i%2].dial(t, fmt.Sprint("user", i))
				case 7:
					time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
				}
			}
			settle()
			for i, c := range conns {
				if v := views[c]; v != nil {
					v.receive(c)
					assert.ElementsMatch(t, nodes[i%2].Presence("room/go"), slices.Collect(maps.Values(v.members)))
				}
			}
			if len(nodes[0].Presence("room/go")) > 0 && len(nodes[1].Presence("room/go")) > 0 {
				assert.Equal(t, nodes[0].Presence("room/go"), nodes[1].Presence("room/go"))
			}
		})
	}
}

// TestPresenceFeed_ClientsOfAllFormatsGetJSON subscribes clients with and without a codec.
func TestPresenceFeed_ClientsOfAllFormatsGetJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		codec := cbor.New(nil)
		r := router.New(&router.Options{Codecs: []router.Codec{codec}})
		router.Topic(r, "room/{id}", &router.TopicOptions{Presence: true, Authorize: permit})
		var clients []*routertest.Conn
		for range 2 { // two of each format share a message
			clients = append(clients, routertest.Dial(t, r, routertest.Codec(codec)), routertest.Dial(t, r))
		}
		for _, c := range clients {
			v := newView(t, routertest.Subscribe(c, "room/go"))
			settle()
			v.receive(c)
		}
		for _, c := range clients {
			newView(t, nil).receive(c) // the later ones
		}
		collect(r)[0].Unsubscribe("room/go")
		settle()
		received := 0
		for i, c := range clients {
			if c.Pending() == 0 {
				continue // the one that has left
			}
			received++
			frame := c.Next()
			assert.Equal(t, "$ws:presence", frame.Type)
			assert.Equal(t, i%2 == 0, frame.Binary)
			assert.Contains(t, string(frame.Payload), `{"topic":"room/go","joined":[],"left":[{"connId":"`)
		}
		assert.Equal(t, 3, received)
	})
}
