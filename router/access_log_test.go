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

// TestDisconnectUser_NodeThatWasCutOff disconnects a user with four connections on two nodes, of
// which one is cut off, and one that connects to that node afterwards.
func TestDisconnectUser_NodeThatWasCutOff(t *testing.T) {
	for name, within := range map[string]time.Duration{"sessions": resumeWithin, "no sessions": 0} {
		runSynctest(t, name, func(t *testing.T) {
			b := memory.NewBroker()
			island := &unreliableBroker{Broker: b}
			change := func(o *router.Options) { o.Resume.Within = within }
			one, two := newUserLogRouter(b, change), newUserLogRouter(island, change)
			before := []*sessionClient{dialSession(t, one, "ann"), dialSession(t, one, "ann"), dialSession(t, two, "ann"), dialSession(t, two, "ann")}
			bob := dialSession(t, two, "bob")
			island.setCut(true)
			late := dialSession(t, two, "ann")
			n, err := one.DisconnectUser("t", "ann", 4403, "banned")
			require.NoError(t, err)
			assert.Equal(t, 2, n)
			again, lateAgain := dialSession(t, one, "ann"), dialSession(t, two, "ann")
			assert.Zero(t, before[2].isClosed(), "the node does not know it")
			island.setCut(false)
			time.Sleep(time.Second)
			for i, c := range append(before, late) {
				assert.EqualValues(t, 4403, c.isClosed(), i)
			}
			assert.EqualValues(t, 4403, lateAgain.isClosed(), "the node cannot know that the user was permitted again")
			assert.Zero(t, again.isClosed())
			assert.Zero(t, bob.isClosed())
			assert.Zero(t, dialSession(t, two, "ann").isClosed())
		})
	}
}

// TestDisconnectUser_OnlyEarlierConnections disconnects a user who connects again at once, to all
// nodes.
func TestDisconnectUser_OnlyEarlierConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		nodes := []*router.Router{newUserLogRouter(b, nil), newUserLogRouter(b, nil), newUserLogRouter(b, nil)}
		for round := range 10 {
			before := dialSession(t, nodes[round%3], "ann").hello()
			_, err := nodes[(round+1)%3].DisconnectUser("t", "ann", 4403, "")
			require.NoError(t, err)
			synctest.Wait()
			var after []*sessionClient
			for _, r := range nodes {
				after = append(after, dialSession(t, r, "ann"))
			}
			time.Sleep(time.Minute)
			assert.EqualValues(t, 4403, before.isClosed())
			for _, c := range after {
				assert.Zero(t, c.isClosed())
				c.Close()
			}
		}
	})
}

// TestDisconnectUser_FollowsMessages sends a message before, which a node that was cut off delivers
// first.
func TestDisconnectUser_FollowsMessages(t *testing.T) {
	for _, cut := range []bool{false, true} {
		runSynctest(t, fmt.Sprint("cut off ", cut), func(t *testing.T) {
			b := memory.NewBroker()
			island := &unreliableBroker{Broker: b}
			one, two := newUserLogRouter(b, nil), newUserLogRouter(island, nil)
			here, there := dialSession(t, one, "ann"), dialSession(t, two, "ann")
			synctest.Wait() // the node knows the position of the log
			island.setCut(cut)
			for n := range 20 {
				_, err := one.SendToUser("t", "ann", Blob{Text: fmt.Sprint(n + 1)})
				require.NoError(t, err)
			}
			_, err := one.DisconnectUser("t", "ann", 4403, "")
			require.NoError(t, err)
			island.setCut(false)
			time.Sleep(time.Minute)
			assert.Equal(t, numbers(1, 20), here.texts())
			assert.Equal(t, numbers(1, 20), there.texts())
			assert.EqualValues(t, 4403, here.isClosed())
			assert.EqualValues(t, 4403, there.isClosed())
		})
	}
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

// TestDisconnectUser_StoreThatIsAway closes the connections of this node nevertheless, and those of
// others when it is called again.
func TestDisconnectUser_StoreThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		island := &unreliableBroker{Broker: b}
		one, two := newUserLogRouter(island, nil), newUserLogRouter(b, nil)
		here, there := dialSession(t, one, "ann"), dialSession(t, two, "ann")
		island.setCut(true)
		n, err := one.DisconnectUser("t", "ann", 99_999, "")
		require.Error(t, err)
		assert.Equal(t, 1, n)
		assert.Equal(t, router.StatusInternalError, here.isClosed())
		assert.Zero(t, there.isClosed())
		island.setCut(false)
		_, err = one.DisconnectUser("t", "ann", 99_999, "")
		require.NoError(t, err)
		assert.Equal(t, router.StatusInternalError, there.isClosed())
	})
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

// TestDisconnectUser_NodeThatStartsWithoutStore accepts connections, which cannot stay when the
// store has returned.
func TestDisconnectUser_NodeThatStartsWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		island := &unreliableBroker{Broker: b}
		island.cut = true
		one, two := newUserLogRouter(b, nil), newUserLogRouter(island, nil)
		began := time.Now()
		early := dialSession(t, two, "ann")
		assert.Equal(t, 2*time.Second, time.Since(began))
		_, err := one.DisconnectUser("t", "ann", 4403, "")
		require.NoError(t, err)
		assert.Zero(t, early.isClosed())
		island.setCut(false)
		time.Sleep(10 * time.Second)
		assert.Equal(t, router.StatusTryAgainLater, early.isClosed())
		began = time.Now()
		assert.Zero(t, dialSession(t, two, "ann").isClosed())
		assert.Zero(t, time.Since(began))
	})
}

// TestDisconnectUser_NodeWithoutTheOption disconnects on nodes with and without it, as while it is
// introduced.
func TestDisconnectUser_NodeWithoutTheOption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		with, without := newUserLogRouter(b, nil), newSessionRouter(b, nil)
		for _, r := range []*router.Router{with, without} {
			here, there := dialSession(t, with, "ann"), dialSession(t, without, "ann")
			require.NoError(t, here.conn.Subscribe("plain/a"))
			require.NoError(t, there.conn.Subscribe("plain/a"))
			require.NoError(t, r.Revoke(t.Context(), "t", "ann", "plain/a"))
			synctest.Wait()
			assert.False(t, here.conn.Subscribed("plain/a"))
			assert.False(t, there.conn.Subscribed("plain/a"))
			_, err := r.DisconnectUser("t", "ann", 4403, "")
			require.NoError(t, err)
			assert.EqualValues(t, 4403, here.isClosed())
			assert.EqualValues(t, 4403, there.isClosed())
		}
	})
}

// TestRevoke_NodeThatWasCutOff ends a subscription, and not that of a connection which is newer.
func TestRevoke_NodeThatWasCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		island := &unreliableBroker{Broker: b}
		change := func(o *router.Options) { o.Resume.Within = 0 }
		one, two := newUserLogRouter(b, change), newUserLogRouter(island, change)
		c := dialSession(t, two, "ann")
		require.NoError(t, c.conn.Subscribe("plain/a"))
		require.NoError(t, c.conn.Subscribe("plain/b"))
		island.setCut(true)
		require.NoError(t, one.Revoke(t.Context(), "t", "ann", "plain/a"))
		again := dialSession(t, one, "ann")
		require.NoError(t, again.conn.Subscribe("plain/a"))
		assert.True(t, c.conn.Subscribed("plain/a"))
		island.setCut(false)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.False(t, c.conn.Subscribed("plain/a"))
		assert.True(t, c.conn.Subscribed("plain/b"))
		assert.True(t, again.conn.Subscribed("plain/a"), "granted afterwards")
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

func TestUserHistory_ShutdownEndsTheLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newUserLogRouter(memory.NewBroker(), nil)
		c := dialLog(t, r, "ann")
		require.NoError(t, r.Shutdown(t.Context()))
		assert.Equal(t, router.StatusServiceRestart, c.isClosed())
		_, err := r.SendToUser("t", "ann", Blob{})
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
		_, err = r.DisconnectUser("t", "ann", 4403, "")
		assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
	})
}
