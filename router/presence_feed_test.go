package router_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// names returns the sorted users of members, each with its info.
func names(members []router.Member) []string {
	all := []string{}
	for _, m := range members {
		all = append(all, strings.TrimSuffix(m.UserID+":"+m.Info, ":"))
	}
	slices.Sort(all)
	return all
}

// settle waits until all changes have been sent.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}

// TestPresenceFeed_NothingPrecedesAnswer keeps the answer waiting for a slow client while members
// join and leave.
func TestPresenceFeed_NothingPrecedesAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authorize := make(chan struct{})
		r := router.New(discardLogs(router.Options{
			Limits: router.Limits{QueueMessages: 4}, Timeouts: patient, SlowConsumer: router.DropNewest,
			Authenticate: byUser,
		}))
		router.Topic(r, "room/{id}", &router.TopicOptions{Presence: true, Authorize: func(*router.Context, router.TopicMatch) error {
			<-authorize
			return nil
		}})
		client, conn := dialPaused(t, r)
		client.SendText(`{"type":"$ws:subscribe","meta":{"correlationId":"c"},"payload":{"topic":"room/go","presence":true}}`)
		synctest.Wait()
		for conn.QueueStats().Messages < 4 {
			require.NoError(t, conn.Send(Nothing{}))
		}
		close(authorize)
		settle()
		assert.Len(t, r.Presence("room/go"), 1, "it is subscribed")
		for _, user := range []string{"bob", "eve"} {
			require.NoError(t, dialSession(t, r, user).conn.Subscribe("room/go", router.Present("")))
			settle()
		}
		resume(client)
		for range 4 {
			routertest.Receive[Nothing](client)
		}
		assert.Contains(t, client.Next().Text, fmt.Sprintf(`"members":[{"connId":%q}]`, conn.ID()))
		change := routertest.ReceivePresence(client)
		assert.Equal(t, []string{"bob", "eve"}, names(change.Joined))
		settle()
		assert.Zero(t, client.Pending())
	})
}

// TestPresenceFeed_SlowClientIsDisconnected fills the queue of a client: its view of the members
// must not become wrong silently, whatever the topic's policy.
func TestPresenceFeed_SlowClientIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{Limits: router.Limits{QueueMessages: 4}, Timeouts: patient}))
		router.Topic(r, "room/{id}", &router.TopicOptions{Presence: true, Authorize: permit, SlowConsumer: router.DropOldest})
		client := routertest.Dial(t, r)
		synctest.Wait()
		conn := onlyConn(t, r)
		routertest.Subscribe(client, "room/go")
		client.Pause()
		for range 20 {
			require.NoError(t, r.Publish("room/go", Nothing{}))
			synctest.Wait()
		}
		join := func() {
			require.NoError(t, dialSession(t, r, "").conn.Subscribe("room/go"))
			settle()
		}
		join()
		require.NoError(t, conn.Context().Err(), "publications make room")
		for range 4 {
			join()
		}
		client.Resume()
		assert.Equal(t, router.StatusTryAgainLater, client.Closed().Code)
	})
}

// TestDevelopment_ExplainsPresenceThatATopicDoesNotHave for clients that have greeted, as those of the libraries do: package
// routertest always asks for it.
func TestDevelopment_ExplainsPresenceThatATopicDoesNotHave(t *testing.T) {
	opts, records := developing(router.Options{})
	r := router.New(opts)
	router.Topic(r, "news", &router.TopicOptions{Authorize: permit})
	router.Topic(r, "room", &router.TopicOptions{Authorize: permit, Presence: true})
	conn := routertest.Dial(t, r)
	conn.Greet()
	for range 2 {
		routertest.Subscribe(conn, "news")
		routertest.Subscribe(conn, "room")
	}
	checkHint(t, logRecord{
		Msg: "presence requested: the pattern has none", Topic: "news", Remedy: "set TopicOptions.Presence of the pattern registered at ",
	}, records())
}
