package router_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/router"
)

// A sessionCluster is two nodes that record how sessions end.
type sessionCluster struct {
	nodes  [2]*router.Router
	ends   [2]recorder[router.SessionEnd]
	closed recorder[bool] // Conn.Resumable in OnClose
}

func newSessionCluster(change func(*router.Options)) *sessionCluster {
	c, b := &sessionCluster{}, memory.NewBroker()
	for i := range c.nodes {
		c.nodes[i] = newSessionRouter(b, func(o *router.Options) {
			o.Resume.OnSessionEnd = c.ends[i].add
			o.OnClose = func(conn *router.Conn, _ router.CloseError) { c.closed.add(conn.Resumable()) }
			if change != nil {
				change(o)
			}
		})
	}
	return c
}

// TestOnSessionEnd_IsCalledOnceForTheLastConnection ends the session of a client on the first node, and
// expects the reason there and none on the other node.
func TestOnSessionEnd_IsCalledOnceForTheLastConnection(t *testing.T) {
	for name, tt := range map[string]struct {
		change    func(*router.Options)
		end       func(*testing.T, *sessionCluster, *sessionClient)
		after     time.Duration // of the end, at most
		want      []router.SessionEndReason
		resumable bool // in OnClose
	}{
		"the client closes": {
			end:  func(_ *testing.T, _ *sessionCluster, c *sessionClient) { c.CloseWith(1000, "") },
			want: []router.SessionEndReason{router.SessionClosed},
		},
		"the server closes": {
			end: func(t *testing.T, _ *sessionCluster, c *sessionClient) {
				c.conn.Close(4000, "")
				assert.EqualValues(t, 4000, c.Closed().Code)
			},
			want: []router.SessionEndReason{router.SessionClosed},
		},
		"the server closes the lost connection": {
			end: func(_ *testing.T, _ *sessionCluster, c *sessionClient) {
				c.Abort()
				synctest.Wait()
				c.conn.Close(4000, "")
			},
			want: []router.SessionEndReason{router.SessionClosed}, resumable: true,
		},
		"the client does not come back": {
			end:   func(_ *testing.T, _ *sessionCluster, c *sessionClient) { c.Abort() },
			after: resumeWithin + 2*time.Second, want: []router.SessionEndReason{router.SessionExpired}, resumable: true,
		},
		"the identity expires": {
			change: func(o *router.Options) {
				o.Authenticate = func(*http.Request) (router.Identity, error) {
					return router.Identity{UserID: "ann", ExpiresAt: time.Now().Add(10 * time.Second)}, nil
				}
			},
			end:   func(_ *testing.T, _ *sessionCluster, c *sessionClient) { c.Abort() },
			after: 12 * time.Second, want: []router.SessionEndReason{router.SessionExpired}, resumable: true,
		},
		"the user is disconnected on the other node": {
			end: func(t *testing.T, cluster *sessionCluster, c *sessionClient) {
				c.Abort()
				synctest.Wait()
				_, err := cluster.nodes[1].DisconnectUser("t", "ann", 4000, "")
				require.NoError(t, err)
			},
			want: []router.SessionEndReason{router.SessionRevoked}, resumable: true,
		},
		"too many sessions": {
			change: func(o *router.Options) { o.Limits.SessionsPerUser = 1 },
			end: func(t *testing.T, cluster *sessionCluster, c *sessionClient) {
				c.Abort()
				synctest.Wait()
				dialSession(t, cluster.nodes[0], "ann").hello().Abort()
			},
			want: []router.SessionEndReason{router.SessionLimited}, resumable: true,
		},
		"another connection resumes and closes": {
			end: func(t *testing.T, cluster *sessionCluster, c *sessionClient) {
				c.Abort()
				synctest.Wait()
				next := dialSession(t, cluster.nodes[0], "ann").hello() // the new session of this one is no end
				next.resume(c.token, "")
				next.CloseWith(1000, "")
			},
			want: []router.SessionEndReason{router.SessionClosed}, resumable: true,
		},
	} {
		runSynctest(t, name, func(t *testing.T) {
			cluster := newSessionCluster(tt.change)
			client := dialSession(t, cluster.nodes[0], "ann").hello()
			id := client.conn.Identity()
			tt.end(t, cluster, client)
			synctest.Wait()
			if tt.after > 0 {
				time.Sleep(tt.after - 2*time.Second - time.Millisecond)
				synctest.Wait()
				assert.Empty(t, cluster.ends[0].all(), "too early")
				time.Sleep(2*time.Second + time.Millisecond)
				synctest.Wait()
			}
			var reasons []router.SessionEndReason
			for _, end := range cluster.ends[0].all() {
				reasons = append(reasons, end.Reason)
				assert.Equal(t, id.UserID, end.Identity.UserID)
			}
			assert.Equal(t, tt.want, reasons)
			assert.Equal(t, tt.resumable, cluster.closed.all()[0])
			time.Sleep(2 * resumeWithin)
			synctest.Wait()
			if name != "too many sessions" { // the second session expires later
				assert.Len(t, cluster.ends[0].all(), len(tt.want), "once")
			}
			assert.Empty(t, cluster.ends[1].all())
		})
	}
}

// TestOnSessionEnd_SessionThatGoesOnHasNotEnded takes a session over on another node, before the
// old connection is lost and after, and shuts down the node that the client has left.
func TestOnSessionEnd_SessionThatGoesOnHasNotEnded(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *sessionCluster, *sessionClient){
		"connection is open": func(*testing.T, *sessionCluster, *sessionClient) {},
		"connection is lost": func(_ *testing.T, _ *sessionCluster, c *sessionClient) { c.Abort() },
		"node is shut down": func(t *testing.T, cluster *sessionCluster, _ *sessionClient) {
			go func() { assert.NoError(t, cluster.nodes[0].Shutdown(t.Context())) }()
			time.Sleep(10 * time.Second)
		},
	} {
		runSynctest(t, name, func(t *testing.T) {
			cluster := newSessionCluster(nil)
			old := dialSession(t, cluster.nodes[0], "ann").hello()
			lose(t, cluster, old)
			synctest.Wait()
			client := dialSession(t, cluster.nodes[1], "ann")
			client.resume(old.token, "")
			time.Sleep(3 * resumeWithin)
			synctest.Wait()
			assert.Empty(t, cluster.ends[0].all())
			assert.Empty(t, cluster.ends[1].all())
			client.CloseWith(1000, "")
			synctest.Wait()
			assert.Empty(t, cluster.ends[0].all())
			assert.Len(t, cluster.ends[1].all(), 1)
		})
	}
}

// TestOnSessionEnd_AsksTheStore loses the packet that another connection has the session, or the
// store when the time is up.
func TestOnSessionEnd_AsksTheStore(t *testing.T) {
	runSynctest(t, "the packet is lost", func(t *testing.T) {
		var ends recorder[router.SessionEnd]
		cut := unreliable()
		one := newSessionRouter(cut.Broker, func(o *router.Options) { o.Resume.OnSessionEnd = ends.add })
		two := newSessionRouter(cut, nil)
		old := dialSession(t, one, "ann").hello()
		old.Abort()
		synctest.Wait()
		cut.silent.Store(true)
		dialSession(t, two, "ann").resume(old.token, "")
		time.Sleep(3 * resumeWithin)
		synctest.Wait()
		assert.Empty(t, ends.all())
	})
	runSynctest(t, "the store is away", func(t *testing.T) {
		var ends recorder[router.SessionEnd]
		cut := unreliable()
		one := newSessionRouter(cut, func(o *router.Options) { o.Resume.OnSessionEnd = ends.add })
		dialSession(t, one, "ann").hello().Abort()
		time.Sleep(resumeWithin)
		cut.store.Store(storeAway)
		time.Sleep(resumeWithin)
		synctest.Wait()
		assert.Empty(t, ends.all())
		cut.store.Store(0)
		time.Sleep(resumeWithin)
		synctest.Wait()
		assert.Len(t, ends.all(), 1)
	})
}
