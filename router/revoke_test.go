package router_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// topicCodes returns the error codes of a result, by topic.
func (r resumed) topicCodes() map[string]errors.Code {
	codes := map[string]errors.Code{}
	for _, topic := range r.Topics {
		codes[topic.Topic] = ""
		if topic.Error != nil {
			codes[topic.Topic] = topic.Error.Code
		}
	}
	return codes
}

// TestRevoke_EndsSubscriptionsOnAllNodes revokes while a client is connected, of a router with and
// without sessions.
func TestRevoke_EndsSubscriptionsOnAllNodes(t *testing.T) {
	for _, within := range []time.Duration{0, resumeWithin} {
		for topic, want := range map[string][]string{
			"private/a":      {"plain/a", "room/a"},
			"room/{name}":    {"plain/a", "private/a"},
			"{all...}":       nil,
			"{kind}/{name}":  nil,
			"other/{name}":   {"plain/a", "private/a", "room/a"},
			"private/{n}/{}": {"plain/a", "private/a", "room/a"},
		} {
			runSynctest(t, fmt.Sprint(within, topic), func(t *testing.T) {
				b := memory.NewBroker()
				change := func(o *router.Options) { o.Resume.Within = within }
				one, two := newSessionRouter(b, change), newSessionRouter(b, change)
				here, there, other := dialSession(t, one, "ann"), dialSession(t, two, "ann"), dialSession(t, two, "bob")
				for _, c := range []*sessionClient{here, there, other} {
					c.call("$ws:hello", `{"session":true}`)
					require.NoError(t, c.conn.Subscribe("private/a"))
					require.NoError(t, c.conn.Subscribe("plain/a", router.Present("")))
					c.call("$ws:subscribe", `{"topic":"room/a"}`)
				}
				synctest.Wait()
				drain(other)
				drain(here)
				drain(there)
				require.NoError(t, one.Revoke(t.Context(), "t", "ann", topic))
				synctest.Wait()
				for _, c := range []*sessionClient{here, there} {
					var subscribed []string
					for _, name := range []string{"plain/a", "private/a", "room/a"} {
						if c.conn.Subscribed(name) {
							subscribed = append(subscribed, name)
						}
					}
					assert.Equal(t, want, subscribed)
					assert.Equal(t, 3-len(want), c.Pending(), "notifications")
					for c.Pending() > 0 {
						assert.Equal(t, "$ws:unsubscribed", c.Next().Type)
					}
				}
				assert.Zero(t, other.Pending())
				assert.True(t, other.conn.Subscribed("private/a"))
				require.NoError(t, here.conn.Subscribe("private/a"), "granted again")
			})
		}
	}
}

// drain drops what a client has received.
func drain(c *sessionClient) {
	for c.Pending() > 0 {
		c.Next()
	}
}

// TestRevoke_WhileClientIsAway resumes afterwards, and presents one of the topics.
func TestRevoke_WhileClientIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
		old := dialSession(t, one, "ann").hello()
		for _, topic := range []string{"private/a", "private/b", "plain/a", "room/a"} {
			require.NoError(t, old.conn.Subscribe(topic))
		}
		synctest.Wait()
		old.Abort()
		synctest.Wait()
		require.NoError(t, two.Revoke(t.Context(), "t", "ann", "private/{name}"))
		require.NoError(t, two.Revoke(t.Context(), "t", "ann", "room/a"))
		require.NoError(t, two.Revoke(t.Context(), "t", "bob", "plain/a"))
		c := dialSession(t, two, "ann")
		answer := c.resume(old.token, `{"topic":"private/a","positions":true},{"topic":"room/a"}`)
		assert.Equal(t, map[string]errors.Code{
			"private/a": errors.PermissionDenied, "private/b": errors.PermissionDenied, "plain/a": "",
			"room/a": "", // Authorize permits it to the client
		}, answer.topicCodes())
		assert.False(t, c.conn.Subscribed("private/a") || c.conn.Subscribed("private/b"))

		// What is granted afterwards survives, although the revocation is still stored.
		require.NoError(t, c.conn.Subscribe("private/a"))
		synctest.Wait()
		c.Abort()
		synctest.Wait()
		again := dialSession(t, one, "ann")
		assert.Equal(t, map[string]errors.Code{"plain/a": "", "private/a": ""}, again.resume(c.token, "").topicCodes())

		// So does what a new session is granted.
		fresh := dialSession(t, one, "ann").hello()
		require.NoError(t, fresh.conn.Subscribe("private/b"))
		synctest.Wait()
		fresh.Abort()
		synctest.Wait()
		assert.Equal(t, map[string]errors.Code{"private/b": ""}, dialSession(t, two, "ann").resume(fresh.token, "").topicCodes())
	})
}

// TestRevoke_WhatIsGrantedAfterwardsStays grants a topic again, and lets the session be stored a
// few times.
func TestRevoke_WhatIsGrantedAfterwardsStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		c := dialSession(t, r, "ann").hello()
		for range 2 {
			require.NoError(t, c.conn.Subscribe("private/a"))
			require.NoError(t, r.Revoke(t.Context(), "t", "ann", "private/a"))
			require.False(t, c.conn.Subscribed("private/a"))
			require.NoError(t, c.conn.Subscribe("private/a"))
			time.Sleep(3 * resumeWithin)
			synctest.Wait()
			assert.True(t, c.conn.Subscribed("private/a"))
		}
		c.Close()
	})
}

// TestRevoke_DuringResume revokes at each moment at which the application is called, or the store.
func TestRevoke_DuringResume(t *testing.T) {
	for _, moment := range []string{"OnResume", "Authorize", "store"} {
		for _, node := range []string{"same node", "another node"} {
			runSynctest(t, moment+", "+node, func(t *testing.T) {
				var revoke, onResume func()
				cut := unreliable()
				two := newSessionRouter(cut.Broker, nil)
				one := newSessionRouter(cut, func(o *router.Options) {
					o.Resume.OnResume = func(*router.Context, router.ResumedSession) error {
						onResume()
						return nil
					}
				})
				allowed := true
				router.Topic(one, "club/{name}", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error {
					was := allowed
					if moment == "Authorize" {
						revoke()
					}
					if !was {
						return errors.Errorf(errors.PermissionDenied, "no member")
					}
					return nil
				}})
				router.Topic(two, "club/{name}", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { return nil }})
				done := false
				revoke = func() {
					if done {
						return
					}
					done, allowed = true, false
					by := map[string]*router.Router{"same node": one, "another node": two}[node]
					require.NoError(t, by.Revoke(context.Background(), "t", "ann", "{all...}"))
					time.Sleep(time.Millisecond) // until the other node has been notified
				}
				old := dialSession(t, two, "ann").hello()
				require.NoError(t, old.conn.Subscribe("private/a"))
				require.NoError(t, old.conn.Subscribe("club/a"))
				require.NoError(t, old.conn.Subscribe("plain/a"))
				synctest.Wait()
				old.Abort()
				synctest.Wait()
				c := dialSession(t, one, "ann")
				onResume = func() {
					if moment == "OnResume" {
						revoke()
					}
				}
				if moment == "store" {
					f := func() { revoke() }
					cut.before.Store(&f)
				}
				answer := c.resume(old.token, `{"topic":"club/b"}`)
				assert.Equal(t, map[string]errors.Code{
					"private/a": errors.PermissionDenied, "club/a": errors.PermissionDenied, "club/b": errors.PermissionDenied, "plain/a": errors.PermissionDenied,
				}, answer.topicCodes())
				require.True(t, done)
				for topic := range answer.topicCodes() {
					assert.False(t, c.conn.Subscribed(topic), topic)
				}
			})
		}
	}
}

// TestRevoke_WhileAuthorizeRuns revokes after Authorize has looked.
func TestRevoke_WhileAuthorizeRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		allowed, calls := true, 0
		router.Topic(r, "club/{name}", &router.TopicOptions{Authorize: func(ctx *router.Context, _ router.TopicMatch) error {
			calls++
			if !allowed {
				return errors.Errorf(errors.PermissionDenied, "no member")
			}
			allowed = false
			return r.Revoke(ctx, "t", "ann", "club/a")
		}})
		c := dialSession(t, r, "ann")
		assert.Contains(t, c.call("$ws:subscribe", `{"topic":"club/a"}`).Text, "PERMISSION_DENIED")
		assert.False(t, c.conn.Subscribed("club/a"))
		assert.Equal(t, 2, calls)
	})
}

// TestRevoke_BrokerIsAway reports that the access may not have ended, and ends it on this node.
func TestRevoke_BrokerIsAway(t *testing.T) {
	for name, state := range map[string]int32{"fails": storeAway, "hangs": storeHangs, "unknown outcome": storeLoses} {
		runSynctest(t, name, func(t *testing.T) {
			one, two, cut := newCutRouters()
			here, there := dialSession(t, one, "ann").hello(), dialSession(t, two, "ann").hello()
			require.NoError(t, here.conn.Subscribe("plain/a"))
			require.NoError(t, there.conn.Subscribe("plain/a"))
			synctest.Wait()
			cut.store.Store(state)
			cut.silent.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			require.ErrorContains(t, one.Revoke(ctx, "t", "ann", "plain/a"), "revocations of a user")
			assert.False(t, here.conn.Subscribed("plain/a"))
			assert.True(t, there.conn.Subscribed("plain/a"))
			_, err := one.DisconnectUser("t", "ann", 4403, "")
			require.ErrorContains(t, err, "revocations of a user")
			cut.store.Store(storeWorks)
			time.Sleep(10 * time.Second) // until calls that hang have returned
			require.NoError(t, one.Revoke(t.Context(), "t", "ann", "plain/a"), "the second time")
		})
	}
}

// TestRevoke_OutcomeIsUnknown stores the change although its outcome is unknown.
func TestRevoke_OutcomeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, cut := newCutRouters()
		old := dialSession(t, two, "ann").hello()
		require.NoError(t, old.conn.Subscribe("plain/a"))
		synctest.Wait()
		old.Abort()
		synctest.Wait()
		cut.store.Store(storeForgets)
		require.NoError(t, one.Revoke(t.Context(), "t", "ann", "plain/a"))
		assert.Equal(t, map[string]errors.Code{"plain/a": errors.PermissionDenied}, dialSession(t, two, "ann").resume(old.token, "").topicCodes())
	})
}

// TestRevoke_NodeThatMissesThePacketCatchesUp loses the packets of Revoke and DisconnectUser.
func TestRevoke_NodeThatMissesThePacketCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, cut := newCutRouters()
		c := dialSession(t, two, "ann").hello()
		require.NoError(t, c.conn.Subscribe("plain/a"))
		require.NoError(t, c.conn.Subscribe("plain/b"))
		cut.silent.Store(true)
		require.NoError(t, one.Revoke(t.Context(), "t", "ann", "plain/a"))
		synctest.Wait()
		assert.True(t, c.conn.Subscribed("plain/a"), "the packet was lost")
		time.Sleep(resumeWithin / 3)
		synctest.Wait()
		assert.False(t, c.conn.Subscribed("plain/a"))
		assert.True(t, c.conn.Subscribed("plain/b"))
		_, err := one.DisconnectUser("t", "ann", 4403, "")
		require.NoError(t, err)
		time.Sleep(resumeWithin / 3)
		drain(c)
		assert.Equal(t, router.StatusPermissionDenied, c.Closed().Code)
	})
}

func TestRevoke_ManyTopicsEndTheSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		old := dialSession(t, r, "ann").hello()
		old.Abort()
		synctest.Wait()
		for n := range 257 {
			require.NoError(t, r.Revoke(t.Context(), "t", "ann", fmt.Sprint("plain/", n)))
		}
		assert.Equal(t, errors.NotFound, dialSession(t, r, "ann").resumeError(old.token))
	})
}

func TestRevoke_InvalidArguments(t *testing.T) {
	r := newSessionRouter(nil, nil)
	assert.Equal(t, errors.InvalidArgument, errors.CodeOf(r.Revoke(t.Context(), "t", "ann", "")))
	assert.Equal(t, errors.InvalidArgument, errors.CodeOf(r.Revoke(t.Context(), "t", "", "plain/a")))
}

func TestDisconnectUser_EndsSessionsOfAbsentClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
		ann, bob := dialSession(t, one, "ann").hello(), dialSession(t, one, "bob").hello()
		ann.Abort()
		bob.Abort()
		synctest.Wait()
		_, err := two.DisconnectUser("t", "ann", 4403, "banned")
		require.NoError(t, err)
		assert.Equal(t, errors.NotFound, dialSession(t, two, "ann").resumeError(ann.token))
		dialSession(t, two, "bob").resume(bob.token, "")
		synctest.Wait() // until the other node has received it, which may close connections that exist then
		fresh := dialSession(t, one, "ann").hello()
		fresh.Abort()
		synctest.Wait()
		dialSession(t, two, "ann").resume(fresh.token, "")
	})
}

// TestRevoke_WhileHandlerOfLostConnectionRuns ends the access of a user whose connection is lost, but has not
// left its topics yet, because a handler runs. The user does not stay present afterwards.
func TestRevoke_WhileHandlerOfLostConnectionRuns(t *testing.T) {
	ends := map[string]func(*testing.T, *router.Router){
		"revoke": func(t *testing.T, r *router.Router) {
			require.NoError(t, r.Revoke(t.Context(), "t", "ann", "members/{name}"))
		},
		"disconnect": func(t *testing.T, r *router.Router) {
			_, err := r.DisconnectUser("t", "ann", router.StatusPermissionDenied, "banned")
			require.NoError(t, err)
		},
	}
	for name, tt := range map[string]struct {
		grace, within time.Duration
		history       router.History // of users
	}{
		"grace":               {grace: time.Hour},
		"session":             {within: time.Hour},
		"grace, with a log":   {grace: time.Hour, history: router.History{Messages: 10}},
		"session, with a log": {within: time.Hour, history: router.History{Messages: 10}},
	} {
		for how, end := range ends {
			runSynctest(t, name+", "+how, func(t *testing.T) {
				b, release := memory.NewBroker(), make(chan struct{})
				newNode := func() *router.Router {
					r := newSessionRouter(b, func(o *router.Options) { o.Resume.Within, o.UserHistory = tt.within, tt.history })
					router.Topic(r, "members/{name}", &router.TopicOptions{Presence: true, PresenceGrace: tt.grace})
					router.On(r, func(*router.Context, Nothing) error { <-release; return nil })
					return r
				}
				one, two := newNode(), newNode()
				bob, ann := dialSession(t, one, "bob"), dialSession(t, one, "ann")
				if tt.within > 0 {
					require.Equal(t, "$ws:welcome", ann.call("$ws:hello", `{"session":true}`).Type)
				}
				require.NoError(t, bob.conn.Subscribe("members/a"))
				require.NoError(t, ann.conn.Subscribe("members/a"))
				ann.Send(Nothing{})
				synctest.Wait()
				ann.Abort()
				synctest.Wait()
				assert.Len(t, one.Presence("members/a"), 2)
				end(t, two)
				synctest.Wait()
				close(release)
				synctest.Wait()
				assert.Len(t, one.Presence("members/a"), 1, "bob alone")
			})
		}
	}
}

func TestResumedSession_Drop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one := newSessionRouter(b, nil)
		two := newSessionRouter(b, func(o *router.Options) {
			o.Resume.OnResume = func(_ *router.Context, s router.ResumedSession) error {
				s.Drop("plain/a")
				s.Drop("room/a")
				s.Drop("plain/unknown")
				return nil
			}
		})
		old := dialSession(t, one, "ann").hello()
		for _, topic := range []string{"plain/a", "plain/b", "room/a"} {
			require.NoError(t, old.conn.Subscribe(topic))
		}
		synctest.Wait()
		old.Abort()
		synctest.Wait()
		c := dialSession(t, two, "ann")
		assert.Equal(t, map[string]errors.Code{"plain/a": errors.PermissionDenied, "plain/b": "", "room/a": errors.PermissionDenied}, c.resume(old.token, "").topicCodes())
		c.Abort()
		synctest.Wait()
		assert.Equal(t, map[string]errors.Code{"plain/b": ""}, dialSession(t, one, "ann").resume(c.token, "").topicCodes())
	})
}
