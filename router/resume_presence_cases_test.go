package router_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A viewBroker connects one node. What the node learns of the members of another node can be late,
// as after lost packets: later than what it learns of others.
type viewBroker struct {
	*memory.Broker

	session broker.HistoryNode

	mu   sync.Mutex
	late string   // the node whose changes are late
	wait []func() // these changes
}

func (b *viewBroker) ConnectHistory(handler broker.Handler, histories broker.HistoryHandler) broker.HistoryNode {
	changed := handler.PresenceChanged
	handler.PresenceChanged = func(topic string, m broker.Member, joined bool) {
		b.mu.Lock()
		late := b.late == m.Node
		if late {
			b.wait = append(b.wait, func() { changed(topic, m, joined) })
		}
		b.mu.Unlock()
		if !late {
			changed(topic, m, joined)
		}
	}
	b.session = b.Broker.ConnectHistory(handler, histories)
	return b.session
}

// delay makes the changes of a node late.
func (b *viewBroker) delay(node int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.late = strconv.Itoa(node + 1) // as the broker names it
}

// catchUp passes the late changes on.
func (b *viewBroker) catchUp() {
	b.mu.Lock()
	late := b.wait
	b.wait, b.late = nil, ""
	b.mu.Unlock()
	for _, change := range late {
		change()
	}
}

// A viewCluster is three nodes, and an observer on each: OnPresence, Router.Presence, and a client.
type viewCluster struct {
	t         *testing.T
	brokers   [3]*viewBroker
	nodes     [3]*router.Router
	events    [3]recorder[router.PresenceEvent]
	observers [3]*sessionClient
	dead      [3]bool

	authorizeFor atomic.Int64 // how long TopicOptions.Authorize takes
}

// sessionWithin is the Resume.Within of most clusters.
const sessionWithin = time.Minute

// newViewCluster starts the nodes. Clients may subscribe to club/…, and are present there.
func newViewCluster(t *testing.T) *viewCluster { return newViewClusterWith(t, sessionWithin, 0) }

func newViewClusterWith(t *testing.T, within, grace time.Duration) *viewCluster {
	v, shared := &viewCluster{t: t}, memory.NewBroker()
	allow := func(*router.Context, router.TopicMatch) error {
		time.Sleep(time.Duration(v.authorizeFor.Load()))
		return nil
	}
	for i := range v.nodes {
		v.brokers[i] = &viewBroker{Broker: shared}
		v.nodes[i] = newSessionRouter(v.brokers[i], func(o *router.Options) {
			o.OnPresence = v.events[i].add
			o.Resume.Within = within
		})
		router.Topic(v.nodes[i], "club/{name}", &router.TopicOptions{Authorize: allow, Presence: true, PresenceGrace: grace})
	}
	for i := range v.nodes {
		v.observers[i] = dialSession(t, v.nodes[i], fmt.Sprint("observer", i))
		v.observers[i].call("$ws:subscribe", `{"topic":"club/go","presence":true}`)
	}
	v.forget()
	return v
}

// pass lets time pass in small steps. A member that is there must be there in each.
func (v *viewCluster) pass(d time.Duration, present ...router.Member) {
	v.t.Helper()
	const step = 250 * time.Millisecond
	for range d / step {
		time.Sleep(step)
		synctest.Wait()
		for i, node := range v.nodes {
			for _, m := range present {
				require.True(v.t, v.dead[i] || slices.Contains(node.Presence("club/go"), m), "node %d", i)
			}
		}
	}
}

// forget forgets what the observers have seen.
func (v *viewCluster) forget() {
	v.pass(time.Second)
	for i, o := range v.observers {
		for v.events[i].take(); o.Pending() > 0; {
			o.Next()
		}
	}
}

// changes returns what the observers of the nodes that live have seen, which must be the same.
// Other observers do not count.
func (v *viewCluster) changes() []string {
	v.t.Helper()
	v.pass(time.Second)
	var all [][]string
	for i := range v.nodes {
		if v.dead[i] {
			continue
		}
		var events, shown []string
		for _, e := range v.events[i].take() {
			events = append(events, change(e.Joined, e.Member))
		}
		for o := v.observers[i]; o.Pending() > 0; {
			m := routertest.ReceivePresence(o.Conn)
			for _, left := range m.Left {
				shown = append(shown, change(false, left))
			}
			for _, joined := range m.Joined {
				shown = append(shown, change(true, joined))
			}
		}
		all = append(all, withoutObservers(events), withoutObservers(shown))
	}
	for _, seen := range all[1:] {
		require.Equal(v.t, all[0], seen)
	}
	return all[0]
}

func change(joined bool, m router.Member) string {
	return fmt.Sprint(map[bool]string{true: "+", false: "-"}[joined], m.UserID, " ", m.Info)
}

func withoutObservers(changes []string) []string {
	return slices.DeleteFunc(changes, func(c string) bool { return len(c) > 9 && c[1:9] == "observer" })
}

// member returns the member of a user.
func (v *viewCluster) member(node int, user string) router.Member {
	for _, m := range v.nodes[node].Presence("club/go") {
		if m.UserID == user {
			return m
		}
	}
	require.Fail(v.t, "no member of "+user)
	return router.Member{}
}

// kill ends node 0 as if its process were killed. The other nodes learn of the end of the node
// first, and of that of its members after a while, or the other way around.
func (v *viewCluster) kill(notice time.Duration) {
	v.dead[0] = true
	for i, b := range v.brokers {
		if i != 0 && notice > 0 {
			b.delay(0)
		}
	}
	_ = v.brokers[0].session.Close(v.t.Context())
}

// A presenceLoss is how a client that is on node 0 loses its connection.
type presenceLoss struct {
	lose   func(*viewCluster, *sessionClient)
	notice time.Duration // after which the other nodes notice that
	ended  bool          // node 0 has ended
}

// losses are the ways to lose a connection after which a client may come back.
func losses() map[string]presenceLoss {
	return map[string]presenceLoss{
		"no other member notices":          {lose: func(*viewCluster, *sessionClient) {}},
		"connection breaks":                {lose: func(_ *viewCluster, c *sessionClient) { c.Abort() }},
		"node is killed":                   {lose: func(v *viewCluster, _ *sessionClient) { v.kill(0) }, ended: true},
		"node is killed, noticed late":     {lose: func(v *viewCluster, _ *sessionClient) { v.kill(5 * time.Second) }, notice: 5 * time.Second, ended: true},
		"node shuts down":                  {lose: (*viewCluster).shutDown, ended: true},
		"breaks, then the node is killed":  {lose: func(v *viewCluster, c *sessionClient) { c.Abort(); synctest.Wait(); v.kill(0) }, ended: true},
		"breaks, then the node shuts down": {lose: func(v *viewCluster, c *sessionClient) { c.Abort(); v.shutDown(c) }, ended: true},
	}
}

func (v *viewCluster) shutDown(*sessionClient) {
	v.dead[0] = true
	go func() { assert.NoError(v.t, v.nodes[0].Shutdown(v.t.Context())) }()
	time.Sleep(3 * time.Second)
	synctest.Wait()
}

// TestPresence_ResumeIsNoChange resumes a session in all situations. No observer sees the member
// leave, or join again.
func TestPresence_ResumeIsNoChange(t *testing.T) {
	t.Parallel()
	joins := map[string]func(*testing.T, *sessionClient){
		"by a handler": func(t *testing.T, c *sessionClient) {
			require.NoError(t, c.conn.Subscribe("club/go", router.Present("Ann")))
		},
		"by itself": func(_ *testing.T, c *sessionClient) { c.call("$ws:subscribe", `{"topic":"club/go","presence":true}`) },
		"before the greeting": func(t *testing.T, c *sessionClient) {
			require.NoError(t, c.conn.Subscribe("club/go", router.Present("Ann")))
		},
		"as another user": func(t *testing.T, c *sessionClient) {
			require.NoError(t, c.conn.Subscribe("club/go", router.Present("Ann")))
			require.NoError(t, c.conn.SetIdentity(router.Identity{TenantID: "t", UserID: "eve"}))
			synctest.Wait()
		},
	}
	for name, loss := range losses() {
		for node := range 3 {
			for _, away := range testscale.SoakSample([]time.Duration{2 * time.Second, 0, sessionWithin / 2}, 1) {
				for how, join := range joins {
					if loss.ended && node == 0 {
						continue
					}
					for _, late := range []bool{false, true} {
						runSynctest(t, fmt.Sprintf("%s, %v, on node %d, joined %s, late %v", name, away, node, how, late), func(t *testing.T) {
							v := newViewCluster(t)
							c := dialSession(t, v.nodes[0], "ann")
							if how != "before the greeting" {
								c.greet()
							}
							join(t, c)
							if c.token == "" {
								c.greet()
							}
							v.forget()
							user := c.conn.Identity().UserID
							member := v.member(0, user)
							loss.lose(v, c)
							v.pass(away, member)
							if late {
								v.delayOthers(node)
							}
							next := dialSession(t, v.nodes[node], user)
							next.resume(c.token, `{"topic":"club/go","presence":true}`)
							v.pass(5*time.Second, member)
							v.catchUp()
							v.pass(3*sessionWithin, member)
							assert.Empty(t, v.changes())
							next.CloseWith(1000, "")
							assert.Equal(t, []string{change(false, member)}, v.changes())
							v.pass(3 * sessionWithin)
							assert.Empty(t, v.changes())
						})
					}
				}
			}
		}
	}
}

// delayOthers makes what a node announces late on the others.
func (v *viewCluster) delayOthers(node int) {
	for i, b := range v.brokers {
		if i != node {
			b.delay(node)
		}
	}
}

func (v *viewCluster) catchUp() {
	for _, b := range v.brokers {
		b.catchUp()
	}
	synctest.Wait()
}

// greet opens a session, whatever Resume.Within is.
func (c *sessionClient) greet() {
	c.t.Helper()
	var welcome routertest.Welcome
	require.NoError(c.t, json.Unmarshal(c.call("$ws:hello", `{"session":true}`).Payload, &welcome))
	require.NotNil(c.t, welcome.Session)
	c.token = welcome.Session.Token
}

// TestPresence_MemberLeavesOnce loses a connection, and does not come back: the member leaves once,
// when the session ends.
func TestPresence_MemberLeavesOnce(t *testing.T) {
	for name, loss := range losses() {
		if name == "no other member notices" {
			continue
		}
		runSynctest(t, name, func(t *testing.T) {
			v := newViewCluster(t)
			c := dialSession(t, v.nodes[0], "ann")
			c.greet()
			require.NoError(t, c.conn.Subscribe("club/go", router.Present("Ann")))
			v.forget()
			member := v.member(0, "ann")
			loss.lose(v, c)
			v.pass(loss.notice, member)
			v.catchUp()
			v.pass(sessionWithin-10*time.Second, member)
			v.pass(30 * time.Second)
			assert.Equal(t, []string{"-ann Ann"}, v.changes())
			v.pass(3 * sessionWithin)
			assert.Empty(t, v.changes())
		})
	}
}

// TestPresence_EndReachesHeldMembers kills the node of a client, and ends the user's access, or
// session, on another one.
func TestPresence_EndReachesHeldMembers(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *router.Router){
		"disconnected": func(t *testing.T, r *router.Router) {
			_, err := r.DisconnectUser("t", "ann", 4000, "")
			require.NoError(t, err)
		},
		"revoked": func(t *testing.T, r *router.Router) {
			require.NoError(t, r.Revoke(t.Context(), "t", "ann", "club/{name}"))
		},
	} {
		runSynctest(t, name, func(t *testing.T) {
			v := newViewCluster(t)
			c := dialSession(t, v.nodes[0], "ann")
			c.greet()
			require.NoError(t, c.conn.Subscribe("club/go", router.Present("Ann")))
			v.forget()
			member := v.member(0, "ann")
			v.kill(0)
			v.pass(10*time.Second, member)
			assert.Empty(t, v.changes())
			end(t, v.nodes[1])
			assert.Equal(t, []string{"-ann Ann"}, v.changes())
		})
	}
}

// TestPresence_ResumeThatTakesLongIsNoChange resumes while TopicOptions.Authorize takes longer than
// a superseded connection stays open, and lets another connection resume meanwhile.
func TestPresence_ResumeThatTakesLongIsNoChange(t *testing.T) {
	for _, again := range []bool{false, true} {
		runSynctest(t, fmt.Sprint("again ", again), func(t *testing.T) {
			v := newViewCluster(t)
			c := dialSession(t, v.nodes[0], "ann")
			c.greet()
			require.NoError(t, c.conn.Subscribe("club/go", router.Present("Ann")))
			v.forget()
			member := v.member(0, "ann")
			v.authorizeFor.Store(int64(15 * time.Second))
			resume := func(node int) *sessionClient {
				next := dialSession(t, v.nodes[node], "ann")
				next.SendText(fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"r"},"payload":{"token":%q,"topics":[{"topic":"club/go"}]}}`, c.token))
				return next
			}
			next := resume(1)
			if again {
				v.pass(2*time.Second, member)
				before := next
				next = resume(2)
				v.pass(6*time.Second, member)
				assert.Equal(t, router.StatusSuperseded, before.Closed().Code)
			}
			v.pass(5*time.Second, member)
			assert.Equal(t, router.StatusSuperseded, c.Closed().Code)
			v.pass(20*time.Second, member)
			assert.Equal(t, "$ws:resumed", next.Next().Type)
			assert.Empty(t, v.changes())
			next.CloseWith(1000, "")
			assert.Equal(t, []string{"-ann Ann"}, v.changes())
		})
	}
}
