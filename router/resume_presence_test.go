package router_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A presenceCluster is two nodes, and a client on each that watches room/go.
type presenceCluster struct {
	nodes    [2]*router.Router
	watchers [2]*sessionClient
	events   [2]recorder[router.PresenceEvent]
}

func newPresenceCluster(t *testing.T, change func(*router.Options)) *presenceCluster {
	c, b := &presenceCluster{}, memory.NewBroker()
	for i := range c.nodes {
		c.nodes[i] = newSessionRouter(b, func(o *router.Options) {
			o.OnPresence = c.events[i].add
			if change != nil {
				change(o)
			}
		})
		allow := func(*router.Context, router.TopicMatch) error { return nil }
		router.Topic(c.nodes[i], "club/{name}", &router.TopicOptions{Authorize: allow, Presence: true, History: router.History{Messages: 10}})
	}
	for i := range c.nodes {
		c.watchers[i] = dialSession(t, c.nodes[i], fmt.Sprint("watcher", i))
		c.watchers[i].call("$ws:subscribe", `{"topic":"club/go","presence":true}`)
	}
	time.Sleep(time.Second)
	synctest.Wait()
	for i, w := range c.watchers {
		c.events[i].take()
		for w.Pending() > 0 {
			w.Next()
		}
	}
	return c
}

// take returns what has happened since the last call, which all nodes and all clients must agree on.
func (p *presenceCluster) take(t *testing.T) []string {
	t.Helper()
	time.Sleep(time.Second) // longer than changes are collected
	synctest.Wait()
	var first []string
	for i := range p.nodes {
		var events []string
		for _, e := range p.events[i].take() {
			events = append(events, fmt.Sprint(map[bool]string{true: "+", false: "-"}[e.Joined], e.Member))
		}
		if i == 0 {
			first = events
		}
		assert.ElementsMatch(t, first, events)
		var shown []string
		for w := p.watchers[i]; w.Pending() > 0; {
			change := routertest.ReceivePresence(w.Conn)
			for _, m := range change.Left {
				shown = append(shown, fmt.Sprint("-", m))
			}
			for _, m := range change.Joined {
				shown = append(shown, fmt.Sprint("+", m))
			}
		}
		assert.ElementsMatch(t, first, shown)
	}
	assert.Equal(t, p.nodes[0].Presence("club/go"), p.nodes[1].Presence("club/go"))
	return first
}

// left returns the users that have left since the last call, as the second node sees it.
func (p *presenceCluster) left(t *testing.T) (users []string) {
	t.Helper()
	for _, e := range p.events[1].take() {
		assert.False(t, e.Joined)
		users = append(users, e.Member.UserID)
	}
	return users
}

// TestResume_MemberStays moves a session between the nodes, and back. No other member sees it leave
// before it closes the connection.
func TestResume_MemberStays(t *testing.T) {
	byHandler := func(t *testing.T, c *sessionClient) {
		require.NoError(t, c.conn.Subscribe("club/go", router.Present("Ann")))
	}
	bySelf := func(_ *testing.T, c *sessionClient) { c.call("$ws:subscribe", `{"topic":"club/go","presence":true}`) }
	for name, join := range map[string]func(*testing.T, *sessionClient){"joined by a handler": byHandler, "joined by itself": bySelf} {
		for _, lost := range []bool{false, true} {
			runSynctest(t, fmt.Sprint(name, ", lost ", lost), func(t *testing.T) {
				p := newPresenceCluster(t, nil)
				c := dialSession(t, p.nodes[0], "ann").hello()
				join(t, c)
				joined := p.take(t)
				require.Len(t, joined, 1)
				assert.Equal(t, "+", joined[0][:1])
				for _, node := range []int{1, 1, 0, 0, 1} {
					if lost {
						c.Abort()
						assert.Empty(t, p.take(t))
						time.Sleep(resumeWithin / 2)
					}
					next := dialSession(t, p.nodes[node], "ann")
					if node == 0 { // also a connection that is a member of its own
						join(t, next)
						require.Len(t, p.take(t), 1)
					}
					next.resume(c.token, `{"topic":"club/go","presence":true}`)
					if changes := p.take(t); node == 0 {
						assert.Len(t, changes, 1, "its own member leaves")
					} else {
						assert.Empty(t, changes)
					}
					assert.Len(t, p.nodes[0].Presence("club/go"), 3)
					c = next
				}
				c.CloseWith(1000, "")
				assert.Equal(t, []string{"-" + joined[0][1:]}, p.take(t))
				time.Sleep(3 * resumeWithin)
				assert.Empty(t, p.take(t))
			})
		}
	}
}

// TestResume_MemberLeavesOnceWithItsSession ends the session of a client that is away.
func TestResume_MemberLeavesOnceWithItsSession(t *testing.T) {
	abort := func(c *sessionClient) { c.Abort() }
	for name, tt := range map[string]struct {
		change func(*router.Options)
		lose   func(*sessionClient)
		stays  bool // until end
		end    func(*testing.T, *presenceCluster)
	}{
		"client does not come back": {lose: abort, stays: true, end: func(*testing.T, *presenceCluster) { time.Sleep(resumeWithin) }},
		"client closes":             {lose: func(c *sessionClient) { c.CloseWith(1000, "") }},
		"page is left":              {lose: func(c *sessionClient) { c.CloseWith(1001, "") }},
		"server closes":             {lose: func(c *sessionClient) { c.conn.Close(4000, "") }},
		"server closes the lost connection": {lose: func(c *sessionClient) {
			c.Abort()
			synctest.Wait()
			c.conn.Close(4000, "")
		}},
		"user is disconnected": {lose: abort, stays: true, end: func(t *testing.T, p *presenceCluster) {
			_, err := p.nodes[1].DisconnectUser("t", "ann", 4000, "")
			require.NoError(t, err)
		}},
		"access is revoked": {lose: abort, stays: true, end: func(t *testing.T, p *presenceCluster) {
			require.NoError(t, p.nodes[1].Revoke(t.Context(), "t", "ann", "club/{name}"))
		}},
		"too many sessions": {
			change: func(o *router.Options) { o.Limits.SessionsPerUser = 1 },
			lose:   abort, stays: true,
			end: func(t *testing.T, p *presenceCluster) { dialSession(t, p.nodes[0], "ann").hello().Abort() },
		},
	} {
		runSynctest(t, name, func(t *testing.T) {
			p := newPresenceCluster(t, tt.change)
			c := dialSession(t, p.nodes[0], "ann").hello()
			require.NoError(t, c.conn.Subscribe("club/go", router.Present("Ann")))
			joined := p.take(t)
			tt.lose(c)
			if tt.stays {
				assert.Empty(t, p.take(t))
				tt.end(t, p)
			}
			want := []string{"-" + joined[0][1:]}
			assert.Equal(t, want, p.take(t))
			time.Sleep(3 * resumeWithin)
			assert.Empty(t, p.take(t))
		})
	}
}

// TestResume_MemberLeavesIfTheSessionGoesOnWithoutTheTopic lets OnResume drop the topic.
func TestResume_MemberLeavesIfTheSessionGoesOnWithoutTheTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPresenceCluster(t, func(o *router.Options) {
			o.Resume.OnResume = func(_ *router.Context, s router.ResumedSession) error { s.Drop("club/go"); return nil }
		})
		c := dialSession(t, p.nodes[0], "ann").hello()
		require.NoError(t, c.conn.Subscribe("club/go", router.Present("Ann")))
		joined := p.take(t)
		c.Abort()
		assert.Empty(t, p.take(t))
		dialSession(t, p.nodes[1], "ann").resume(c.token, "")
		assert.Equal(t, []string{"-" + joined[0][1:]}, p.take(t))
	})
}

// TestResume_MemberStaysWhenItsNodeShutsDown moves one client when the server asks it to. Another
// one is away, and does not come back.
func TestResume_MemberStaysWhenItsNodeShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPresenceCluster(t, nil)
		c, away := dialSession(t, p.nodes[0], "ann").hello(), dialSession(t, p.nodes[0], "bob").hello()
		for _, c := range []*sessionClient{c, away} {
			require.NoError(t, c.conn.Subscribe("club/go", router.Present("")))
		}
		p.take(t)
		away.Abort()
		assert.Empty(t, p.take(t))
		go func() { assert.NoError(t, p.nodes[0].Shutdown(t.Context())) }()
		for c.Next().Type != "$ws:goaway" {
		}
		dialSession(t, p.nodes[1], "ann").resume(c.token, `{"topic":"club/go"}`)
		time.Sleep(resumeWithin / 2)
		synctest.Wait()
		assert.Equal(t, []string{"watcher0"}, p.left(t), "it has no session")
		time.Sleep(resumeWithin)
		synctest.Wait()
		assert.Equal(t, []string{"bob"}, p.left(t))
	})
}

// TestResume_AbsentMemberKeepsItsTopic loses all connections of a node that subscribe to a topic.
func TestResume_AbsentMemberKeepsItsTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		c := dialSession(t, r, "ann").hello()
		require.NoError(t, c.conn.Subscribe("private/go", router.Present("Ann")))
		c.Abort()
		synctest.Wait()
		err := r.Publish("private/go", Blob{Text: "1"}, router.Stored(t.Context(), nil))
		require.NoError(t, err)
		members := r.Presence("private/go")
		require.Len(t, members, 1)
		next := dialSession(t, r, "ann")
		next.resume(c.token, "")
		synctest.Wait()
		assert.Equal(t, members, r.Presence("private/go"))
		next.CloseWith(1000, "")
		synctest.Wait()
		assert.Empty(t, r.Presence("private/go"))
	})
}
