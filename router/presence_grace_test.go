package router_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

const presenceGrace = time.Minute

// newGraceCluster is newViewCluster without sessions.
func newGraceCluster(t *testing.T) *viewCluster { return newViewClusterWith(t, 0, presenceGrace) }

// enter connects a client, which joins the topic.
func (v *viewCluster) enter(node int, user string) *sessionClient {
	c := dialSession(v.t, v.nodes[node], user)
	require.NoError(v.t, c.conn.Subscribe("club/go", router.Present("Ann")))
	return c
}

// TestPresenceGrace_ReturnIsNoChange loses the connection of a user in all ways. No observer sees a
// user leave, or join again, who returns in time.
func TestPresenceGrace_ReturnIsNoChange(t *testing.T) {
	t.Parallel()
	for name, loss := range losses() {
		for node := range 3 {
			for _, away := range testscale.SoakSample([]time.Duration{2 * time.Second, 0, presenceGrace / 2}, 1) {
				for _, late := range []bool{false, true} {
					if loss.ended && node == 0 {
						continue
					}
					runSynctest(t, fmt.Sprintf("%s, %v, on node %d, late %v", name, away, node, late), func(t *testing.T) {
						v := newGraceCluster(t)
						c := v.enter(0, "ann")
						v.forget()
						member := v.member(0, "ann")
						loss.lose(v, c)
						v.pass(away, member)
						if late {
							v.delayOthers(node)
						}
						next := v.enter(node, "ann")
						v.pass(5*time.Second, member)
						v.catchUp()
						if name == "no other member notices" {
							c.Abort()
						}
						v.pass(3*presenceGrace, member)
						assert.Empty(t, v.changes())
						next.CloseWith(1000, "")
						assert.Equal(t, []string{"-ann Ann"}, v.changes())
						v.pass(3 * presenceGrace)
						assert.Empty(t, v.changes())
					})
				}
			}
		}
	}
}

// TestPresenceGrace_UserLeavesOnce loses a connection for good.
func TestPresenceGrace_UserLeavesOnce(t *testing.T) {
	for name, loss := range losses() {
		if name == "no other member notices" {
			continue
		}
		runSynctest(t, name, func(t *testing.T) {
			v := newGraceCluster(t)
			c := v.enter(0, "ann")
			v.forget()
			member := v.member(0, "ann")
			loss.lose(v, c)
			v.pass(loss.notice, member)
			v.catchUp()
			v.pass(presenceGrace-10*time.Second, member)
			v.pass(30 * time.Second)
			assert.Equal(t, []string{"-ann Ann"}, v.changes())
			v.pass(3 * presenceGrace)
			assert.Empty(t, v.changes())
		})
	}
}

// TestPresenceGrace_UserLeavesAtOnce ends a connection deliberately, or the presence of a user who
// is away.
func TestPresenceGrace_UserLeavesAtOnce(t *testing.T) {
	disconnect := func(code router.StatusCode) func(*viewCluster, *sessionClient) {
		return func(v *viewCluster, _ *sessionClient) {
			_, err := v.nodes[1].DisconnectUser("t", "ann", code, "")
			require.NoError(v.t, err)
		}
	}
	away := func(lose func(*viewCluster, *sessionClient), then func(*viewCluster, *sessionClient)) func(*viewCluster, *sessionClient) {
		return func(v *viewCluster, c *sessionClient) {
			lose(v, c)
			v.pass(10 * time.Second)
			assert.Empty(v.t, v.changes())
			then(v, c)
		}
	}
	abort := func(_ *viewCluster, c *sessionClient) { c.Abort() }
	kill := func(v *viewCluster, _ *sessionClient) { v.kill(0) }
	revoke := func(v *viewCluster, _ *sessionClient) {
		require.NoError(v.t, v.nodes[1].Revoke(v.t.Context(), "t", "ann", "club/{name}"))
	}
	for name, end := range map[string]func(*viewCluster, *sessionClient){
		"client closes":                       func(_ *viewCluster, c *sessionClient) { c.CloseWith(1000, "") },
		"page is left":                        func(_ *viewCluster, c *sessionClient) { c.CloseWith(1001, "") },
		"server closes":                       func(_ *viewCluster, c *sessionClient) { c.conn.Close(4000, "") },
		"handler unsubscribes":                func(_ *viewCluster, c *sessionClient) { c.conn.Unsubscribe("club/go") },
		"user is disconnected":                disconnect(4000),
		"user is disconnected with 1012":      disconnect(router.StatusServiceRestart),
		"access is revoked":                   revoke,
		"absent user is disconnected":         away(abort, disconnect(4000)),
		"absent user loses access":            away(abort, revoke),
		"user of a dead node is disconnected": away(kill, disconnect(4000)),
		"user of a dead node loses access":    away(kill, revoke),
	} {
		runSynctest(t, name, func(t *testing.T) {
			v := newGraceCluster(t)
			c := v.enter(0, "ann")
			v.forget()
			end(v, c)
			assert.Equal(t, []string{"-ann Ann"}, v.changes())
			v.pass(3 * presenceGrace)
			assert.Empty(t, v.changes())
		})
	}
}

// TestPresenceGrace_AnonymousClientsLeaveWithTheirConnection: nothing says that another connection
// is that of the same client.
func TestPresenceGrace_AnonymousClientsLeaveWithTheirConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newGraceCluster(t)
		one, two := v.enter(0, ""), v.enter(1, "")
		assert.Equal(t, []string{"+ Ann", "+ Ann"}, v.changes())
		one.Abort()
		assert.Equal(t, []string{"- Ann"}, v.changes())
		two.Abort()
		assert.Equal(t, []string{"- Ann"}, v.changes())
	})
}

// TestPresenceGrace_ConnectionsOfAUserAreOneMember opens two on different nodes, and logs another
// client in.
func TestPresenceGrace_ConnectionsOfAUserAreOneMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newGraceCluster(t)
		one, two := v.enter(0, "ann"), v.enter(1, "ann")
		assert.Equal(t, []string{"+ann Ann"}, v.changes())
		one.CloseWith(1000, "")
		assert.Empty(t, v.changes())
		guest := v.enter(2, "")
		assert.Equal(t, []string{"+ Ann"}, v.changes())
		require.NoError(t, guest.conn.SetIdentity(router.Identity{TenantID: "t", UserID: "ann"}))
		assert.Equal(t, []string{"- Ann"}, v.changes())
		two.CloseWith(1000, "")
		assert.Empty(t, v.changes())
		guest.CloseWith(1000, "")
		assert.Equal(t, []string{"-ann Ann"}, v.changes())
	})
}

// TestPresenceGrace_SessionsLastLonger gives the client a session: it stays until that ends.
func TestPresenceGrace_SessionsLastLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newViewClusterWith(t, 2*presenceGrace, presenceGrace)
		c := v.enter(0, "ann")
		c.greet()
		v.forget()
		member := v.member(1, "ann")
		c.Abort()
		v.pass(2*presenceGrace-time.Second, member)
		assert.Empty(t, v.changes())
		v.pass(3 * time.Second)
		assert.Equal(t, []string{"-ann Ann"}, v.changes())
	})
}

// TestPresenceGrace_AbsentUsersAreBounded connects and disconnects again and again, in one topic
// and in others.
func TestPresenceGrace_AbsentUsersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := discardLogs(router.Options{Authenticate: byUserToken, Limits: router.Limits{SessionsPerUser: 5}})
		r := router.New(opts)
		router.Topic(r, "club/{name}", &router.TopicOptions{PresenceGrace: presenceGrace})
		for i := range 200 {
			c := dialSession(t, r, "ann")
			require.NoError(t, c.conn.Subscribe("club/go", router.Present("")))
			require.NoError(t, c.conn.Subscribe(fmt.Sprint("club/", i), router.Present("")))
			c.Abort()
			synctest.Wait()
		}
		assert.Len(t, r.Presence("club/go"), 1)
		present := 0
		for i := range 200 {
			present += len(r.Presence(fmt.Sprint("club/", i)))
		}
		assert.Equal(t, 5, present)
		assert.LessOrEqual(t, r.AbsentConns(), 5)
		time.Sleep(presenceGrace)
		synctest.Wait()
		assert.Empty(t, r.Presence("club/go"))
		assert.Zero(t, r.AbsentConns())
	})
}
