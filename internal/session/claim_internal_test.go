package session

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A claimTest is a session of ann with the topics room/a and hall/a, and a connection of another node that
// claims it.
type claimTest struct {
	t     *testing.T
	store *testStore
	first *Session // the one that has the session
	node  *Node
	conn  *testConn
	req   Request
}

func runClaimTest(t *testing.T, name string, f func(*testing.T, *claimTest)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := &claimTest{t: t, store: newTestStore(), conn: newTestConn("second")}
			c.node = newTestNode(c.store)
			earlier, granted := newTestConn("first"), map[string]Grant{"room/a": {Joined: true}, "hall/a": {}}
			c.first = newTestNode(c.store).Begin(&earlier.Conn, ann, nil, granted)
			require.True(t, c.first.StoreFirst(t.Context()))
			token, ok := c.first.Token()
			require.True(t, ok)
			c.req = Request{Token: token, CorrelationID: "r", Conn: &c.conn.Conn, Identity: ann, Admit: admitAll}
			f(t, c)
			c.first.node.Close(t.Context())
			c.first.node.timers.Stop(c.first)
		})
	})
}

// fails claims the session, which must be refused and then still be that of the first connection.
func (c *claimTest) fails(code errors.Code) {
	c.t.Helper()
	_, err := c.node.Claim(c.t.Context(), &c.req)
	require.Error(c.t, err)
	assert.Equal(c.t, code, errors.CodeOf(err), err)
	assert.Zero(c.t, c.node.Len(), "the node knows the session")
	assert.False(c.t, c.first.IsOver())
}

func (c *claimTest) claim() *Claim {
	c.t.Helper()
	k, err := c.node.Claim(c.t.Context(), &c.req)
	require.NoError(c.t, err)
	return k
}

func (c *claimTest) adopt(k *Claim) {
	c.t.Helper()
	require.NoError(c.t, k.Adopt(ann, nil, nil))
	k.Session.node.timers.Stop(k.Session)
}

func TestClaim_RefusesWhoMayNotResume(t *testing.T) {
	for name, f := range map[string]func(*claimTest){
		"no token":      func(c *claimTest) { c.req.Token = ""; c.fails(errors.NotFound) },
		"other key":     func(c *claimTest) { c.req.Token = strings.ToLower(c.req.Token); c.fails(errors.NotFound) },
		"unknown":       func(c *claimTest) { c.req.Token, _ = newToken(strings.Repeat("A", 26)); c.fails(errors.NotFound) },
		"wrong secret":  func(c *claimTest) { c.req.Token, _ = newToken(c.first.id); c.fails(errors.NotFound) },
		"other user":    func(c *claimTest) { c.req.Identity.UserID = "bob"; c.fails(errors.PermissionDenied) },
		"its own":       func(c *claimTest) { c.req.Current = c.first; c.fails(errors.FailedPrecondition) },
		"store is away": func(c *claimTest) { c.store.away = true; c.fails(errors.Unavailable) },
		"store is full": func(c *claimTest) {
			c.store.full = true
			c.fails(errors.Unavailable)
			c.store.full = false
			c.adopt(c.claim()) // with the same token
		},
		"identity has expired": func(c *claimTest) {
			c.req.Identity.ExpiresAt = time.Now().Add(-time.Second)
			c.fails(errors.Unauthenticated)
		},
		"record is no JSON": func(c *claimTest) {
			c.store.values[recordKey(c.first.id)] = testValue{broker.Value{Data: []byte("{"), Version: 9}, time.Now().Add(time.Hour)}
			c.fails(errors.Unavailable)
		},
		"sessions have ended": func(c *claimTest) {
			require.NoError(c.t, c.node.EndSessions(c.t.Context(), ann.User, End{Code: 4000}))
			c.fails(errors.NotFound)
		},
		"application": func(c *claimTest) {
			c.req.Admit = func(string, []string) (map[string]struct{}, error) {
				return nil, &errors.Error{Code: errors.ResourceExhausted}
			}
			c.fails(errors.ResourceExhausted)
		},
		"record is deleted meanwhile": func(c *claimTest) {
			c.meanwhile(func() { c.store.replace(c.first.id, nil) })
			c.fails(errors.NotFound)
		},
		"another connection is faster": func(c *claimTest) {
			c.meanwhile(func() { c.store.replace(c.first.id, &record{ConnID: "third", Generation: 2}) })
			c.fails(errors.Aborted)
		},
	} {
		runClaimTest(t, name, func(_ *testing.T, c *claimTest) { f(c) })
	}
}

// meanwhile calls f when the record has been read.
func (c *claimTest) meanwhile(f func()) {
	c.req.Admit = func(string, []string) (map[string]struct{}, error) {
		f()
		synctest.Wait()
		return nil, nil
	}
}

func TestClaim_MovesTheSession(t *testing.T) {
	runClaimTest(t, "twice with one token", func(t *testing.T, c *claimTest) {
		k := c.claim()
		c.adopt(k)
		assert.Equal(t, map[string]Grant{"room/a": {Joined: true}, "hall/a": {}}, k.Session.Topics())
		assert.Equal(t, c.first.MemberID(), k.Session.MemberID())
		again := newTestConn("third") // the answer was lost
		c.req.Conn = &again.Conn
		next := c.claim()
		c.adopt(next)
		next.Announce()
		assert.Equal(t, []string{"StopServing"}, c.conn.actions)
		next.Session.Acknowledge("r")
		synctest.Wait()
		_, err := c.node.Claim(t.Context(), &c.req)
		assert.Equal(t, errors.NotFound, errors.CodeOf(err), "the token has been replaced")
	})
	runClaimTest(t, "the record is stored meanwhile", func(t *testing.T, c *claimTest) {
		c.meanwhile(func() { c.first.Grant("late/a", Grant{}) })
		k := c.claim()
		c.adopt(k)
		assert.Contains(t, k.Session.Topics(), "late/a")
		c.first.Fire()
		synctest.Wait()
		assert.True(t, c.first.TakenOver(), "the save has found the other connection")
	})
	runClaimTest(t, "topics are lost", func(t *testing.T, c *claimTest) {
		_, err := c.node.Revoke(t.Context(), ann.User, "room/{id}")
		require.NoError(t, err)
		c.req.Admit = func(previous string, topics []string) (map[string]struct{}, error) {
			assert.Equal(t, "first", previous)
			assert.Equal(t, []string{"hall/a"}, topics)
			return map[string]struct{}{"hall/a": {}}, nil
		}
		k := c.claim()
		c.adopt(k)
		assert.Empty(t, k.Session.Topics())
		assert.Equal(t, []string{"hall/a", "room/a"}, k.Ended)
	})
	runClaimTest(t, "of a connection on another node", func(t *testing.T, c *claimTest) {
		var packets []Packet
		var owners []string
		c.node.config.Publish = func(kind Packet, owner string, packet []byte) {
			packets, owners = append(packets, kind), append(owners, owner)
			c.first.node.Receive(kind, packet)
		}
		k := c.claim()
		k.Announce()
		assert.Equal(t, "superseded", (&testSession{Session: c.first}).name())
		c.adopt(k)
		k.AnnounceMoved([]string{"hall/a"})
		assert.True(t, c.first.GoesOn("room/a"))
		assert.False(t, c.first.GoesOn("hall/a"))
		again := newTestConn("third")
		c.req.Conn = &again.Conn
		next := c.claim() // without an acknowledgment, the first connection may still be there
		next.Announce()
		assert.Equal(t, []Packet{PacketClaimed, PacketMoved, PacketClaimed}, packets)
		assert.Equal(t, []string{"first", "first", ""}, owners)
		c.adopt(next)
		next.Session.Acknowledge("r")
		synctest.Wait()
		c.req.Conn = &newTestConn("fourth").Conn
		c.req.Token, _ = next.Session.Token()
		c.claim().Announce()
		assert.Len(t, packets, 3, "all earlier connections are on this node")
	})
	runClaimTest(t, "the identity changes meanwhile", func(t *testing.T, c *claimTest) {
		k := c.claim()
		expires := time.Now().Add(time.Hour)
		require.NoError(t, k.Adopt(Identity{User: ann.User, ExpiresAt: expires}, nil, nil))
		synctest.Wait()
		assert.Equal(t, expires.UnixMilli(), c.store.record(k.id).ExpiresAt)
		k.Session.node.timers.Stop(k.Session)
	})
	runClaimTest(t, "superseded before it is adopted", func(t *testing.T, c *claimTest) {
		k := c.claim()
		c.node.Receive(PacketClaimed, (&Session{id: k.id, generation: 3}).packet())
		assert.Equal(t, []string{"GiveUp"}, c.conn.actions)
		assert.Equal(t, errors.Aborted, errors.CodeOf(k.Adopt(ann, nil, nil)))
		assert.Zero(t, c.node.Len())
	})
	runClaimTest(t, "with a session and grants of its own", func(t *testing.T, c *claimTest) {
		own := c.node.Begin(&c.conn.Conn, ann, nil, map[string]Grant{"own/a": {}})
		require.True(t, own.StoreFirst(t.Context()))
		k := c.claim()
		require.NoError(t, k.Adopt(ann, own, nil))
		synctest.Wait()
		assert.Len(t, k.Session.Topics(), 3)
		assert.Len(t, c.store.record(k.id).Topics, 3)
		assert.Zero(t, c.store.record(own.id), "the session that the connection had")
		assert.True(t, own.IsOver())
		k.Session.node.timers.Stop(k.Session)
	})
}

// TestAdopt_TakesOtherGrantsAsFarAsThereIsRoom claims a session with two topics, whose record has room for
// nine, on a connection that has nine.
func TestAdopt_TakesOtherGrantsAsFarAsThereIsRoom(t *testing.T) {
	granted := map[string]Grant{"hall/a": {Joined: true}}
	for n := range 8 {
		granted[fmt.Sprint("own/", n)] = Grant{}
	}
	for name, hasSession := range map[string]bool{"of a session": true, "without a session": false} {
		runClaimTest(t, name, func(t *testing.T, c *claimTest) {
			var before *Session
			others := granted
			if hasSession {
				before, others = c.node.Begin(&c.conn.Conn, ann, nil, granted), nil
				require.True(t, before.StoreFirst(t.Context()))
				require.Len(t, before.Topics(), 9)
			}
			k := c.claim()
			require.NoError(t, k.Adopt(ann, before, others))
			synctest.Wait()
			topics := k.Session.Topics()
			assert.Len(t, topics, 9)
			assert.Equal(t, Grant{Joined: true}, topics["room/a"])
			assert.Equal(t, Grant{}, topics["hall/a"], "the session keeps its own grant")
			assert.Len(t, k.Topics, 2)
			assert.Len(t, c.store.record(k.id).Topics, 9)
			k.Session.node.timers.Stop(k.Session)
		})
	}
}

// An endingStore ends the goroutine that stores a value, or loses its answer.
type endingStore struct {
	*testStore

	exits bool
}

// PatchValue stores the value.
func (b endingStore) PatchValue(ctx context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	_, err := b.testStore.PatchValue(ctx, key, p, version, lifetime)
	if b.exits {
		runtime.Goexit()
	}
	return 0, lose(err)
}

// StoreValue is PatchValue.
func (b endingStore) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	_, err := b.testStore.StoreValue(ctx, key, data, version, lifetime)
	if b.exits {
		runtime.Goexit()
	}
	return 0, lose(err)
}

func lose(err error) error {
	if err == nil {
		err = errors.Errorf(errors.OutcomeUnknown, "the answer was lost")
	}
	return err
}

func TestClaim_AnswerOfTheStoreIsLost(t *testing.T) {
	runClaimTest(t, "the record says that the connection has the session", func(t *testing.T, c *claimTest) {
		c.node.config.Store = endingStore{testStore: c.store}
		k := c.claim()
		c.node.config.Store = c.store
		c.adopt(k)
		k.Session.Grant("next/a", Grant{})
		synctest.Wait()
		assert.Contains(t, c.store.record(k.id).Topics, "next/a")
	})
	runClaimTest(t, "the goroutine ends", func(t *testing.T, c *claimTest) {
		c.node.config.Store = endingStore{c.store, true}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = c.node.Claim(t.Context(), &c.req)
		}()
		<-done
		assert.Zero(t, c.node.Len(), "the node knows the session")
	})
}

// TestBegin_WithoutStore begins a session that is stored when the store returns.
func TestBegin_WithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, conn := newTestStore(), newTestConn("conn")
		n := newTestNode(store)
		store.setAway(true)
		s := n.Begin(&conn.Conn, ann, nil, nil)
		assert.True(t, s.StoreFirst(t.Context()))
		_, ok := s.Token()
		assert.True(t, ok)
		time.Sleep(within)
		store.setAway(false)
		time.Sleep(2 * maxSaveWait)
		synctest.Wait()
		assert.Equal(t, "conn", store.record(s.id).ConnID)
		s.Discard()
		synctest.Wait()
		assert.Equal(t, []string{"stored", "deleted"}, store.log)
		n.Close(t.Context())
	})
}

// TestBegin_ClientDoesNotLearnOfIt begins sessions whose clients have gone, or whose goroutine the store ends.
func TestBegin_ClientDoesNotLearnOfIt(t *testing.T) {
	for name, tt := range map[string]struct {
		lost, exits bool
		log         []string
	}{
		"the store is away":      {},
		"the answer is lost":     {lost: true, log: []string{"stored", "deleted"}},
		"the goroutine is ended": {exits: true, log: []string{"stored"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, conn := newTestStore(), newTestConn("conn")
				n := newTestNode(endingStore{store, tt.exits})
				store.setAway(!tt.lost && !tt.exits)
				ctx, cancel := context.WithCancel(t.Context())
				if !tt.exits {
					cancel()
				}
				defer cancel()
				s := n.Begin(&conn.Conn, ann, nil, nil)
				var begun atomic.Bool
				go func() { begun.Store(s.StoreFirst(ctx)) }()
				synctest.Wait()
				assert.False(t, begun.Load())
				_, ok := s.Token()
				assert.False(t, ok)
				assert.Zero(t, n.Len(), "the node knows the session")
				n.Close(t.Context())
				assert.Equal(t, tt.log, store.log)
			})
		})
	}
}

// A stallingStore stores a new value after a time, unless the context of the call ends before.
type stallingStore struct {
	*testStore

	after          time.Duration
	ignoresContext bool
}

// StoreValue stores the value.
func (b stallingStore) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	switch {
	case lifetime == 0:
		return b.testStore.StoreValue(ctx, key, data, version, lifetime)
	case b.ignoresContext:
		ctx = context.Background()
	}
	select {
	case <-time.After(b.after):
		return b.testStore.StoreValue(ctx, key, data, version, lifetime)
	case <-ctx.Done():
		return 0, errors.Errorf(errors.OutcomeUnknown, "the store has not answered")
	}
}

// TestBegin_StoreStalls closes the connection while the store does not answer, or lets time pass.
func TestBegin_StoreStalls(t *testing.T) {
	for name, tt := range map[string]struct {
		after, closedAfter, want time.Duration
		log                      []string
	}{
		"the connection is closed":              {time.Minute, time.Second, time.Second, []string{"deleted"}},
		"it has been closed":                    {time.Minute, 0, 0, []string{"deleted"}},
		"it is closed before the store answers": {3 * time.Second / 2, time.Second, 3 * time.Second / 2, []string{"stored", "deleted"}},
		"the store takes too long":              {time.Minute, time.Hour, firstTimeout, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, conn := newTestStore(), newTestConn("conn")
				n := newTestNode(stallingStore{store, tt.after, tt.after < firstTimeout})
				n.config.WatchesEnds = false
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := n.Begin(&conn.Conn, ann, nil, nil)
				closed := time.AfterFunc(tt.closedAfter, func() { cancel(); s.Disconnected(false, false) })
				defer closed.Stop()
				if tt.closedAfter == 0 {
					synctest.Wait()
				}
				began := time.Now()
				begun := s.StoreFirst(ctx)
				assert.Equal(t, tt.want, time.Since(began))
				assert.Equal(t, tt.closedAfter == time.Hour, begun)
				synctest.Wait()
				if !begun {
					assert.Zero(t, n.Len(), "the node knows the session")
				}
				assert.Equal(t, tt.log, store.log)
			})
		})
	}
}

// TestAbsent_OldestOfAnAddressEnds leaves a session and a user without one behind, of one address.
func TestAbsent_OldestOfAnAddressEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestSession(t)
		defer s.end()
		s.adopt()
		s.disconnect()
		began := time.Now()
		s.node.leave(User{}, netip.MustParsePrefix("192.0.2.2/32"), func() { assert.Equal(t, within, time.Since(began), "it is of another address") })
		synctest.Wait()
		assert.Equal(t, "detached", s.name())
		ended := false
		s.node.leave(User{}, s.conn.Address, func() { ended = true })
		synctest.Wait()
		assert.Equal(t, "ended", s.name())
		assert.Equal(t, []EndReason{LimitedPerAddress}, s.conn.reasons)
		var left atomic.Int32
		s.node.leave(User{}, s.conn.Address, func() { left.Add(1) })
		synctest.Wait()
		assert.True(t, ended)
		assert.Zero(t, left.Load())
		time.Sleep(within)
		synctest.Wait()
		assert.Equal(t, int32(1), left.Load())
		s.node.leave(User{}, s.conn.Address, func() {})
		synctest.Wait()
		assert.Equal(t, int32(1), left.Load(), "it is not away any more when the next one is")
	})
}

// TestAbsent_ResumedSessionsDoNotCount leaves a session behind, which another connection resumes on the same
// node or on another one, and then another session of the user, of whom one session may be away.
func TestAbsent_ResumedSessionsDoNotCount(t *testing.T) {
	for name, sameNode := range map[string]bool{"same node": true, "another node": false} {
		runClaimTest(t, name, func(t *testing.T, c *claimTest) {
			n := c.first.node
			if sameNode {
				c.node = n
			}
			c.node.config.Publish = func(kind Packet, _ string, packet []byte) { n.Receive(kind, packet) }
			other := newTestConn("other")
			later := n.Begin(&other.Conn, ann, nil, nil)
			require.True(t, later.StoreFirst(t.Context()))
			c.first.Disconnected(false, false)
			k := c.claim()
			k.Announce()
			c.adopt(k)
			k.AnnounceMoved(nil)
			sessions, others := n.config.Away.Len()
			assert.Zero(t, sessions+others)
			later.Disconnected(false, false)
			n.leave(ann.User, netip.Prefix{}, func() {})
			synctest.Wait()
			assert.Equal(t, []EndReason{LimitedPerUser}, other.reasons)
			n.leave(ann.User, netip.Prefix{}, func() {})
			sessions, others = n.config.Away.Len()
			assert.Equal(t, [2]int{0, 1}, [2]int{sessions, others})
		})
	}
}

// TestAbsent_WhoDoesNotComeBackIsForgotten leaves sessions behind, of many users and addresses.
func TestAbsent_WhoDoesNotComeBackIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newTestNode(newTestStore())
		for i := range 1000 {
			id := fmt.Sprint(i)
			address := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(i / 256), byte(i)}), 32)
			n.leave(User{"t", id}, address, func() {})
			time.Sleep(within / 10)
			_, others := n.config.Away.Len()
			assert.LessOrEqual(t, others, 11)
		}
	})
}

// TestClaim_HasGrantsThatAreNotStoredYet claims a session whose last grants could not be stored.
func TestClaim_HasGrantsThatAreNotStoredYet(t *testing.T) {
	for name, sameNode := range map[string]bool{"same node": true, "another node": false} {
		runClaimTest(t, name, func(t *testing.T, c *claimTest) {
			c.store.setAway(true)
			c.first.Grant("late/a", Grant{Epoch: "e", Offset: 3})
			c.first.Drop("hall/a")
			synctest.Wait()
			c.store.setAway(false)
			if sameNode {
				c.node = c.first.node
			}
			k := c.claim()
			c.adopt(k)
			if sameNode {
				assert.Equal(t, map[string]Grant{"room/a": {Joined: true}, "late/a": {Epoch: "e", Offset: 3}}, k.Topics)
			} else {
				assert.Equal(t, map[string]Grant{"room/a": {Joined: true}, "hall/a": {}}, k.Topics, "only the owner knows")
			}
			c.node.Close(t.Context())
		})
	}
}

// TestClaim_RefusesSessionWhoseRecordIsNotDeletedYet claims a session that has ended while the store was away.
func TestClaim_RefusesSessionWhoseRecordIsNotDeletedYet(t *testing.T) {
	for name, end := range map[string]func(*Session){
		"ended":  (*Session).Discard,
		"closed": func(s *Session) { s.Disconnected(true, false) },
		"ended after the loss": func(s *Session) {
			s.Disconnected(false, false)
			s.Discard()
		},
		"closed after the end": func(s *Session) {
			s.Discard()
			s.Disconnected(true, false)
		},
	} {
		runClaimTest(t, name, func(t *testing.T, c *claimTest) {
			c.node = c.first.node
			c.store.setAway(true)
			end(c.first)
			synctest.Wait()
			c.store.setAway(false)
			_, err := c.node.Claim(t.Context(), &c.req)
			assert.Equal(t, errors.NotFound, errors.CodeOf(err), err)
			time.Sleep(maxSaveWait)
			synctest.Wait()
			assert.Zero(t, c.store.record(c.first.id))
			if name == "ended" {
				c.first.Disconnected(true, false)
			}
			assert.Equal(t, [2]int{}, c.node.count(), "the node forgets the session")
		})
	}
	for name, kind := range map[string]Packet{"claimed by another node": PacketClaimed, "moved to another node": PacketMoved} {
		runClaimTest(t, name, func(t *testing.T, c *claimTest) {
			c.store.setAway(true)
			c.first.Disconnected(true, false)
			synctest.Wait()
			c.store.setAway(false)
			k := c.claim()
			c.adopt(k)
			c.first.node.Receive(kind, k.Session.packet())
			assert.Zero(t, c.first.node.Len(), "the node forgets the session")
			time.Sleep(2 * maxSaveWait)
			synctest.Wait()
			assert.Equal(t, k.Session.generation, c.store.record(k.id).Generation, "it is not deleted")
		})
	}
}

// TestClaim_HasGrantsOfClosedConnection claims a session whose connection has been closed before its
// last grants could be stored. Nothing else makes its node wait for the client.
func TestClaim_HasGrantsOfClosedConnection(t *testing.T) {
	runClaimTest(t, "same node", func(t *testing.T, c *claimTest) {
		c.node = c.first.node
		c.node.config.WatchesEnds = false
		c.store.setAway(true)
		c.first.Grant("late/a", Grant{Epoch: "e", Offset: 3})
		c.first.Disconnected(false, false)
		c.first.ForgetIfUnused()
		synctest.Wait()
		c.store.setAway(false)
		k := c.claim()
		c.adopt(k)
		assert.Contains(t, k.Topics, "late/a")
		assert.Equal(t, 2, c.node.Len())
		k.AnnounceMoved(nil)
		assert.Equal(t, [2]int{1, 0}, c.node.count(), "the node forgets the earlier connection")
	})
	runClaimTest(t, "after the record has been stored", func(t *testing.T, c *claimTest) {
		c.first.node.config.WatchesEnds = false
		c.first.Grant("late/a", Grant{Epoch: "e", Offset: 3})
		c.first.Disconnected(false, false)
		c.first.ForgetIfUnused()
		synctest.Wait()
		assert.Equal(t, [2]int{}, c.first.node.count(), "the node forgets the session")
		k := c.claim()
		c.adopt(k)
		assert.Contains(t, k.Topics, "late/a")
	})
}
