package router_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

const presenceGrace = time.Minute

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
