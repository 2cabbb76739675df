package router_test

import (
	"fmt"
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

func TestResume_NodeThatCrashesLeavesItsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, cut := newCutRouters()
		old := dialSession(t, one, "ann").hello()
		require.NoError(t, old.conn.Subscribe("plain/a"))
		synctest.Wait()
		time.Sleep(10 * time.Minute) // the record is refreshed
		cut.store.Store(storeAway)
		cut.silent.Store(true)
		old.Abort()
		time.Sleep(resumeWithin - time.Second)
		c := dialSession(t, two, "ann")
		c.resume(old.token, "").topic(t, "plain/a")
	})
}

func TestResume_StoreThatIsAwayDelaysIt(t *testing.T) {
	for name, mode := range map[string]int32{"away": storeAway, "hangs": storeHangs, "loses": storeLoses} {
		runSynctest(t, name, func(t *testing.T) {
			one, two, cut := newCutRouters()
			old := dialSession(t, two, "ann").hello()
			old.Abort()
			c := dialSession(t, one, "ann")
			cut.store.Store(mode)
			c.SendText(fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"x","timeoutMs":3000},"payload":{"token":%q}}`, old.token))
			code := routertest.ReceiveError(c.Conn).Code
			assert.Contains(t, []errors.Code{errors.Unavailable, errors.DeadlineExceeded, errors.Aborted}, code)
			cut.store.Store(storeWorks)
			c.resume(old.token, "")
		})
	}
}

// TestResume_OutcomeThatIsUnknownIsFoundOut stores the record without an answer: the new connection
// has the session nevertheless.
func TestResume_OutcomeThatIsUnknownIsFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, cut := newCutRouters()
		old := dialSession(t, two, "ann").hello()
		c := dialSession(t, one, "ann")
		cut.store.Store(storeForgets)
		answer := c.resume(old.token, "")
		assert.Equal(t, router.StatusSuperseded, old.Closed().Code)
		cut.store.Store(storeWorks)
		time.Sleep(10 * time.Minute)
		c.Abort()
		dialSession(t, two, "ann").resume(answer.Session.Token, "")
	})
}

func TestResume_SavesAreRepeatedUntilTheStoreReturns(t *testing.T) {
	for name, mode := range map[string]int32{"away": storeAway, "hangs": storeHangs, "loses": storeLoses, "forgets": storeForgets} {
		runSynctest(t, name, func(t *testing.T) {
			one, two, cut := newCutRouters()
			old := dialSession(t, one, "ann").hello()
			cut.store.Store(mode)
			require.NoError(t, old.conn.Subscribe("plain/a"))
			synctest.Wait()
			calls := func() int64 { return cut.changes.Load() + cut.failures.Load() }
			before := calls()
			time.Sleep(time.Minute)
			attempts := calls() - before // some of them fail before they change anything
			assert.Greater(t, attempts, int64(5))
			assert.LessOrEqual(t, attempts, int64(40))
			cut.store.Store(storeWorks)
			time.Sleep(15 * time.Second)
			cut.store.Store(storeAway)
			old.Abort()
			c := dialSession(t, two, "ann")
			c.resume(old.token, "").topic(t, "plain/a")
		})
	}
}

// TestResume_SessionThatHasEndedIsDeletedWhenTheStoreReturns ends a session while its record cannot be
// deleted.
func TestResume_SessionThatHasEndedIsDeletedWhenTheStoreReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, cut := newCutRouters()
		old := dialSession(t, one, "ann").hello()
		cut.store.Store(storeAway)
		old.Close()
		time.Sleep(30 * time.Second)
		cut.store.Store(storeWorks)
		time.Sleep(10 * time.Second)
		assert.Equal(t, errors.NotFound, dialSession(t, two, "ann").resumeError(old.token))
	})
}

func TestResume_NothingIsStoredAfterTheEnd(t *testing.T) {
	for name, end := range map[string]func(*sessionClient, *unreliableBroker){
		"lost":                     func(c *sessionClient, _ *unreliableBroker) { c.Abort() },
		"closed":                   func(c *sessionClient, _ *unreliableBroker) { c.Close() },
		"lost without the store":   func(c *sessionClient, cut *unreliableBroker) { cut.store.Store(storeAway); c.Abort() },
		"closed without the store": func(c *sessionClient, cut *unreliableBroker) { cut.store.Store(storeAway); c.Close() },
	} {
		runSynctest(t, name, func(t *testing.T) {
			one, _, cut := newCutRouters()
			c := dialSession(t, one, "ann").hello()
			end(c, cut)
			time.Sleep(2 * resumeWithin)
			before := cut.changes.Load()
			time.Sleep(time.Hour)
			assert.Equal(t, before, cut.changes.Load())
		})
	}
}

func TestResume_RecordIsRefreshedAtTheDocumentedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, _, cut := newCutRouters()
		c := dialSession(t, one, "ann").hello()
		before := cut.changes.Load()
		time.Sleep(100 * resumeWithin)
		refreshes := cut.changes.Load() - before
		assert.GreaterOrEqual(t, refreshes, int64(300))
		assert.LessOrEqual(t, refreshes, int64(400))
		assert.Len(t, collect(one), 1)
		c.Abort()
	})
}

func TestResume_LostPacketDoesNotSaveTheOldConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := unreliable()
		one, two := newSessionRouter(cut.Broker, nil), newSessionRouter(cut, nil)
		old := dialSession(t, one, "ann").hello()
		cut.silent.Store(true)
		c := dialSession(t, two, "ann")
		c.resume(old.token, "")
		synctest.Wait()
		assert.Len(t, collect(one), 1)
		time.Sleep(resumeWithin / 3)
		assert.Equal(t, router.StatusSuperseded, old.Closed().Code)
		c.acknowledge()
		c.Abort()
		assert.Equal(t, errors.NotFound, dialSession(t, one, "ann").resumeError(old.token))
		dialSession(t, one, "ann").resume(c.token, "")
	})
}

// TestResume_OneOfTwoAtOnceWins stores the record of one connection while another one, which has read
// the same record, is about to.
func TestResume_OneOfTwoAtOnceWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, cut := newCutRouters()
		old := dialSession(t, two, "ann").hello()
		old.Abort()
		synctest.Wait()
		slow, fast := dialSession(t, one, "ann"), dialSession(t, two, "ann")
		meanwhile := func() { fast.resume(old.token, "") }
		cut.before.Store(&meanwhile)
		assert.Equal(t, errors.Aborted, slow.resumeError(old.token))
		synctest.Wait()
		assert.Len(t, collect(two), 1, "the faster one has the session")
		fast.acknowledge()
		assert.Equal(t, errors.NotFound, slow.resumeError(old.token))
	})
}

// TestResume_OldConnectionThatSavesMeanwhileDoesNotWin stores the record of the old connection between
// the two calls of the resume.
func TestResume_OldConnectionThatSavesMeanwhileDoesNotWin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, cut := newCutRouters()
		old := dialSession(t, two, "ann").hello()
		c := dialSession(t, one, "ann")
		meanwhile := func() {
			_ = old.conn.Subscribe("plain/late")
			synctest.Wait()
		}
		cut.before.Store(&meanwhile)
		answer := c.resume(old.token, "")
		answer.topic(t, "plain/late")
		assert.Equal(t, router.StatusSuperseded, old.Closed().Code)
	})
}

// TestSubscribe_FailsIfTheSessionHasMovedWithoutIt resumes the session before the subscription is stored: the client would wait for
// publications that never come.
func TestSubscribe_FailsIfTheSessionHasMovedWithoutIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, cut := newCutRouters()
		old := dialSession(t, one, "ann").hello()
		resumed := make(chan struct{})
		meanwhile := func() {
			dialSession(t, two, "ann").resume(old.token, "")
			close(resumed)
		}
		cut.before.Store(&meanwhile)
		assert.Equal(t, errors.Aborted, errors.CodeOf(old.conn.Subscribe("plain/late")))
		<-resumed
	})
}

// TestResume_TopicThatCannotBeReadFollowsLater resumes while the histories cannot be read.
func TestResume_TopicThatCannotBeReadFollowsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut := unreliable()
		one := newSessionRouter(cut, func(o *router.Options) { o.Timeouts.Call = 8 * time.Second })
		two := newSessionRouter(cut.Broker, nil)
		old := dialSession(t, two, "ann").hello()
		require.NoError(t, old.conn.Subscribe("private/a"))
		synctest.Wait()
		old.Abort()
		synctest.Wait()
		c := dialSession(t, one, "ann")
		cut.away.Store(true)
		answer := c.resume(old.token, `{"topic":"feed/a","epoch":"E","offset":1}`)
		assert.Equal(t, errors.Unavailable, answer.topic(t, "private/a").Error.Code)
		assert.True(t, answer.topic(t, "private/a").Error.Retryable)
		assert.Equal(t, errors.Unavailable, answer.topic(t, "feed/a").Error.Code)
		cut.away.Store(false)
		time.Sleep(10 * time.Second)
		frame := c.Next()
		assert.Equal(t, "$ws:subscribed", frame.Type)
		assert.Contains(t, frame.Text, `"topic":"private/a","epoch":`)
		err := two.Publish("private/a", Blob{Text: "1"}, router.Stored(t.Context(), nil))
		require.NoError(t, err)
		assert.Equal(t, []string{"1"}, c.texts())
		assert.False(t, c.conn.Subscribed("feed/a"), "the client can ask for it")
	})
}

// resumeThatWaits returns a connection that resumes a session with the topic private/a while its node cannot read histories, another
// node, and the token.
func resumeThatWaits(t *testing.T) (c *sessionClient, other *router.Router, token string) {
	one, two, cut := newCutRouters()
	old := dialSession(t, two, "ann").hello()
	require.NoError(t, old.conn.Subscribe("private/a"))
	synctest.Wait()
	old.Abort()
	cut.away.Store(true)
	c = dialSession(t, one, "ann")
	c.SendText(fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"1"},"payload":{"token":%q}}`, old.token))
	time.Sleep(time.Second)
	return c, two, old.token
}

// TestResume_InterruptedKeepsWhatHandlersHaveGranted loses the connection that resumes while the store cannot be read.
func TestResume_InterruptedKeepsWhatHandlersHaveGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, two, token := resumeThatWaits(t)
		c.Abort()
		synctest.Wait()
		next := dialSession(t, two, "ann")
		assert.Nil(t, next.resume(token, "").topic(t, "private/a").Error)
	})
}

// TestResume_SupersededWhileAHandlerSubscribes resumes a session again while the first connection that resumes it still waits, and a
// handler has subscribed that connection.
func TestResume_SupersededWhileAHandlerSubscribes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, two, token := resumeThatWaits(t)
		require.NoError(t, c.conn.Subscribe("plain/late"))
		next := dialSession(t, two, "ann")
		assert.Nil(t, next.resume(token, "").topic(t, "plain/late").Error)
		assert.Equal(t, router.StatusSuperseded, c.Closed().Code)
	})
}

// TestResume_FailoverToAnOlderRecordDoesNotCloseTheConnection replaces the record of a session by an
// older one, as a store does that fails over to a replica.
func TestResume_FailoverToAnOlderRecordDoesNotCloseTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
		ignore := broker.Handler{
			Receive: func(string, string, []byte) {}, Subscribed: func(string) {}, MessagesLost: func(string, int) {},
			PresenceChanged: func(string, broker.Member, bool) {}, NodeLeft: func(string) {},
		}
		store := b.ConnectHistory(ignore, broker.HistoryHandler{Published: func(string, broker.Publication) {}, Following: func(string) {}})
		defer func() { require.NoError(t, store.Close(t.Context())) }()
		old := dialSession(t, one, "ann").hello()
		key := "session " + old.token[:26]
		older, err := store.LoadValue(t.Context(), key)
		require.NoError(t, err)
		require.NotEmpty(t, older.Data)
		c := dialSession(t, two, "ann")
		c.resume(old.token, "")
		c.acknowledge()
		current, err := store.LoadValue(t.Context(), key)
		require.NoError(t, err)
		_, err = store.StoreValue(t.Context(), key, older.Data, current.Version, time.Hour)
		require.NoError(t, err)
		time.Sleep(resumeWithin / 3)
		require.Len(t, collect(two), 1, "the connection is open")
		c.Abort()
		synctest.Wait()
		assert.Equal(t, errors.NotFound, dialSession(t, one, "ann").resumeError(old.token))
		dialSession(t, one, "ann").resume(c.token, "")
	})
}
