package router_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// isClosed returns the code with which the server has closed a connection, or 0.
func (c *sessionClient) isClosed() router.StatusCode {
	synctest.Wait()
	if c.conn.Context().Err() == nil {
		return 0
	}
	var closed *router.CloseError
	errors.As(context.Cause(c.conn.Context()), &closed)
	return closed.Code
}

// TestDisconnectUser_WhileConnecting disconnects a user who is being authenticated.
func TestDisconnectUser_WhileConnecting(t *testing.T) {
	for name, change := range map[string]func(*router.Options){
		"published": func(o *router.Options) { o.UserHistory = router.History{} }, "in a log": func(*router.Options) {},
	} {
		runSynctest(t, name, func(t *testing.T) {
			b := memory.NewBroker()
			other := newUserLogRouter(b, change)
			disconnect := false
			r := newUserLogRouter(b, func(o *router.Options) {
				change(o)
				o.Authenticate = func(req *http.Request) (router.Identity, error) {
					if disconnect {
						_, err := other.DisconnectUser("t", "ann", 4403, "banned")
						assert.NoError(t, err)
						time.Sleep(time.Second) // it reaches this node meanwhile
					}
					return byUserToken(req)
				}
			})
			assert.Zero(t, dialSession(t, r, "ann").isClosed())
			disconnect = true
			assert.EqualValues(t, 4403, routertest.Dial(t, r, routertest.Token("ann")).Closed().Code, "perhaps before it is listed")
			assert.Zero(t, dialSession(t, r, "bob").isClosed())
			disconnect = false
			anonymous := dialSession(t, r, "")
			disconnect = true
			anonymous.SendText(`{"type":"$ws:auth","meta":{"correlationId":"a"},"payload":{"token":"ann"}}`)
			time.Sleep(2 * time.Second)
			assert.EqualValues(t, 4403, anonymous.isClosed(), "the token was checked before")
			disconnect = false
			assert.Zero(t, dialSession(t, r, "ann").isClosed(), "who connects afterwards")
		})
	}
}

// TestDisconnectUser_LogThatIsTooShort cuts a node off for longer than the log reaches: it cannot
// know whose access has ended, so all users connect again.
func TestDisconnectUser_LogThatIsTooShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		island := &unreliableBroker{Broker: b}
		var lost recorder[string]
		one := newUserLogRouter(b, nil)
		two := newUserLogRouter(island, func(o *router.Options) {
			o.OnMessagesLost = func(topic string, n int) { lost.add(fmt.Sprintf("%q %d", topic, n)) }
		})
		ann, bob, anonymous := dialSession(t, two, "ann"), dialSession(t, two, "bob").hello(), dialSession(t, two, "")
		island.setCut(true)
		for n := range 10_003 {
			_, err := one.DisconnectUser("t", fmt.Sprint(n), 4403, "")
			require.NoError(t, err)
		}
		island.setCut(false)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{`"" 3`}, lost.all())
		assert.Equal(t, router.StatusTryAgainLater, ann.isClosed())
		assert.Equal(t, router.StatusTryAgainLater, bob.isClosed())
		assert.Contains(t, bob.Closed().Reason, "retryAfterMs")
		assert.Zero(t, anonymous.isClosed())
		dialSession(t, two, "bob").resume(bob.token, "")
	})
}

// TestAccessLog_IgnoresMalformedEntries stores what no version of this package does.
func TestAccessLog_IgnoresMalformedEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		r := newUserLogRouter(b, nil)
		c := dialSession(t, r, "ann")
		session := b.ConnectHistory(broker.Handler{}, broker.HistoryHandler{})
		whole := "\x01n\x03\x01t\x03ann\xa3\x22"
		packets := []string{"", "\x01n\x09\x01t\x03ann", "\x01n\x06\x01t\x03ann\x00", "\x01n\x06\x01t\x03ann\x00\x01", "\x01n\x03\x01t\x00\xa3\x22"}
		for end := range len(whole) {
			packets = append(packets, whole[:end])
		}
		for _, packet := range packets {
			_, err := session.Append(t.Context(), broker.Append{Topic: "\x00access", Packet: []byte(packet)})
			require.NoError(t, err)
		}
		assert.Zero(t, c.isClosed())
		_, err := session.Append(t.Context(), broker.Append{Topic: "\x00access", Packet: []byte(whole)})
		require.NoError(t, err)
		assert.EqualValues(t, 4387, c.isClosed())
	})
}
