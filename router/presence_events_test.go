package router_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// TestOnPresence_MergesChangesIfManyWait changes members while the hook runs, before and after many
// calls wait.
func TestOnPresence_MergesChangesIfManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events recorder[string]
		release := make(chan struct{})
		r := router.New(&router.Options{Limits: router.Limits{Topics: 2000}, OnPresence: func(e router.PresenceEvent) {
			events.add(fmt.Sprint(e.Topic, " ", e.Member.Info, " ", e.Joined))
			<-release
		}})
		a, b, late, many := onlyConnOf(t, r), onlyConnOf(t, r), onlyConnOf(t, r), onlyConnOf(t, r)
		require.NoError(t, a.Subscribe("t", router.Present("")))
		require.NoError(t, b.Subscribe("t", router.Present("b")))
		b.Unsubscribe("t") // few calls wait: both are reported
		synctest.Wait()
		for n := range 1022 {
			require.NoError(t, many.Subscribe(fmt.Sprint("other ", n), router.Present("")))
		}
		require.NoError(t, late.Subscribe("t", router.Present("late"))) // joins and leaves: nothing
		late.Unsubscribe("t")
		a.Unsubscribe("t") // leaves and returns as it was: nothing
		require.NoError(t, a.Subscribe("t", router.Present("")))
		require.NoError(t, a.Subscribe("t", router.Present("a"))) // another info
		close(release)
		synctest.Wait()
		reported := slices.DeleteFunc(events.all(), func(e string) bool { return strings.HasPrefix(e, "other") })
		assert.Equal(t, []string{"t  true", "t b true", "t b false", "t  false", "t a true"}, reported)
		assert.Len(t, events.all(), 1022+len(reported))
	})
}

// onlyConnOf connects a client and returns its connection.
func onlyConnOf(t *testing.T, r *router.Router) *router.Conn {
	t.Helper()
	return dialSession(t, r, "").conn
}

// TestOnPresence_WaitingCallsAreBounded has a connection that joins and leaves 20,000 times while the
// hook runs.
func TestOnPresence_WaitingCallsAreBounded(t *testing.T) {
	calls := 0
	started, release := make(chan struct{}), make(chan struct{})
	r := router.New(&router.Options{Limits: withoutRates(router.Limits{}), OnPresence: func(router.PresenceEvent) {
		if calls++; calls == 1 {
			close(started)
			<-release
		}
	}})
	require.NoError(t, onlyConnOf(t, r).Subscribe("t", router.Present("")))
	<-started
	c := onlyConnOf(t, r)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range 20_000 {
		require.NoError(t, c.Subscribe(fmt.Sprint("topic ", n%500), router.Present("")))
		c.Unsubscribe(fmt.Sprint("topic ", n%500))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(1<<20))
	close(release)
	require.Eventually(t, func() bool { return len(r.Presence("t")) == 1 }, time.Minute, time.Millisecond)
}
