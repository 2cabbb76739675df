package router_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
)

// TestSession_WritesWhatChanges grants one topic after another, takes some away, and resumes the
// session.
func TestSession_WritesWhatChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const each = 256 // bytes for one change
		topics := testscale.Tiers(200, 300, 900)
		b := unreliable()
		r := newSessionRouter(b, nil)
		c := dialSession(t, r, "ann").hello()
		conn := onlyConn(t, r)
		written := func() int64 {
			synctest.Wait()
			return b.written.Swap(0)
		}
		written()
		for n := range topics {
			require.NoError(t, conn.Subscribe(fmt.Sprint("granted/", n)))
			require.LessOrEqual(t, written(), int64(each), n)
		}
		changes := b.changes.Load()
		for _, n := range []int{0, topics / 2, topics - 1} {
			conn.Unsubscribe(fmt.Sprint("granted/", n))
			assert.LessOrEqual(t, written(), int64(each), n)
		}
		assert.Equal(t, changes+3, b.changes.Load(), "each change was stored")
		c.Abort()
		written()
		again := dialSession(t, r, "ann")
		again.resume(c.token, "")
		assert.LessOrEqual(t, written(), int64(4*each))
		for n := range topics {
			kept := n != 0 && n != topics/2 && n != topics-1
			assert.Equal(t, kept, onlyConn(t, r).Subscribed(fmt.Sprint("granted/", n)), n)
		}
	})
}
