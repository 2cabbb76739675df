package router_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestSendToUser_ConflatesOnOtherNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one := router.New(&router.Options{Broker: b})
		two := router.New(&router.Options{Broker: b, SlowConsumer: router.Conflate, Authenticate: func(req *http.Request) (router.Identity, error) {
			return router.Identity{UserID: router.Token(req)}, nil
		}})
		ann := routertest.Dial(t, two, routertest.Token("ann"))
		synctest.Wait()
		ann.Pause()
		for n := range 1000 {
			_, err := one.SendToUser("", "ann", Position{"p", n})
			require.NoError(t, err)
		}
		synctest.Wait()
		ann.Resume()
		synctest.Wait()
		assert.Less(t, ann.Pending(), 500)
		last := Position{}
		for ann.Pending() > 0 {
			last = routertest.Receive[Position](ann)
		}
		assert.Equal(t, 999, last.X)
	})
}

func TestDisconnectUser_ClosesConnectionsOnAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one, two := newNode(b), newNode(b)
		here, there, other := one.dial(t, "ann"), two.dial(t, "ann"), two.dial(t, "bob")
		synctest.Wait()
		reason := strings.Repeat("x", 200)
		n, err := one.DisconnectUser("acme", "ann", 4001, reason)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		for _, c := range []*routertest.Conn{here, there} {
			assert.Equal(t, router.CloseError{Code: 4001, Reason: reason[:123]}, c.Closed())
		}
		n, err = one.DisconnectUser("acme", "", 4001, "")
		require.NoError(t, err)
		assert.Zero(t, n)
		synctest.Wait()
		other.Send(Say{"go", "still connected"})
		synctest.Wait()
	})
}

func TestUsers_IgnoreMalformedPackets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &recordingBroker{}
		n := newNode(b)
		ann := n.dial(t, "ann")
		synctest.Wait()
		_, err := n.SendToUser("acme", "ann", Say{"go", "hi"})
		require.NoError(t, err)
		_, err = n.DisconnectUser("acme", "ann", 4001, "bye")
		require.NoError(t, err)
		routertest.Receive[Say](ann)
		for _, packet := range b.published.all() {
			for end := range len(packet) - len("bye") { // every prefix without the code, and without a whole message
				if packet[0] == 2 && end > strings.Index(packet, "{") && strings.Contains(packet, "{") {
					break
				}
				b.Receive("\x00users", "two", []byte(packet[:end]))
			}
		}
		b.Receive("\x00users", "two", []byte("\x09\x04acme\x03ann"))
		b.MessagesLost("\x00users", 3)
		synctest.Wait()
		assert.Equal(t, []int{3}, n.lost.all())
	})
}
