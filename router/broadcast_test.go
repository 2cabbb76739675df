package router_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestPublish_ReachesManySubscribers publishes to more subscribers than are looked at together, while
// some of them disconnect.
func TestPublish_ReachesManySubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var receivers recorder[int]
		r := newChat()
		r.Observe(func(e observe.Event) {
			if e.Kind == observe.Published {
				receivers.add(e.Count)
			}
		})
		var clients []*routertest.Conn
		for range 100 {
			clients = append(clients, routertest.Dial(t, r))
		}
		for i := range clients { // in another order than they have connected
			clients[i*37%len(clients)].Send(Subscribe{"go"})
		}
		synctest.Wait()
		for round := range 5 {
			clients[round*5].Abort()
			clients = slices.Delete(clients, round*5, round*5+1)
			synctest.Wait()
			publisher := clients[round*17%len(clients)]
			publisher.Send(SayOthers{"go", fmt.Sprint(round)})
			synctest.Wait()
			for _, c := range clients {
				if c == publisher {
					assert.Zero(t, c.Pending())
					continue
				}
				require.Equal(t, 1, c.Pending())
				require.Equal(t, Say{"go", fmt.Sprint(round)}, routertest.Receive[Say](c))
			}
			assert.Equal(t, len(clients)-1, receivers.all()[round])
		}
	})
}

// TestPublish_ReachesManyFollowers publishes to more followers than are looked at together, and to a
// subscriber without positions.
func TestPublish_ReachesManyFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFeedRouter(nil, router.History{Messages: 100})
		feeds := make([]*feed, 40)
		for i := range feeds {
			feeds[i] = &feed{t: t}
			feeds[i].subscribe(r)
		}
		plain := routertest.Dial(t, r)
		plain.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"feed/a"}}`)
		require.Equal(t, "$ws:subscribed", plain.Next().Type)
		for round := range 5 {
			feeds[0].client.Abort()
			feeds = feeds[1:]
			synctest.Wait()
			feeds[7].client.Send(Blob{Text: fmt.Sprint(round)})
			synctest.Wait()
			for i, f := range feeds {
				f.receive()
				require.Equal(t, uint64(round)+1, f.offset)
				if i != 7 {
					require.Equal(t, fmt.Sprint(round), f.texts[round])
				}
			}
			require.Equal(t, 1, plain.Pending())
			require.Equal(t, Blob{Text: fmt.Sprint(round)}, routertest.Receive[Blob](plain))
		}
	})
}
