package router_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

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
