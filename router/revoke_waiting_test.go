package router_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// This file revokes the access of users while an answer about a topic, after TopicOptions.Authorize has permitted it, waits
// for room in the send queue.

// A waitingRouter has the topics "members/{name}", whose members have a long info.
type waitingRouter struct {
	*router.Router
	t       *testing.T
	allowed bool
	hold    chan struct{} // Authorize returns when it is closed
}

const (
	waitingQueue  = 8000 // bytes
	waitingAnswer = 3000 // the answers about topics are longer
)

// newWaitingRouter returns a router whose topic "members/a" has members.
func newWaitingRouter(t *testing.T) *waitingRouter {
	w := &waitingRouter{t: t, allowed: true}
	w.Router = newSessionRouter(nil, func(o *router.Options) { o.Limits.QueueBytes = waitingQueue })
	router.DeclareMessage[Text](w.Router) // fills the queue
	router.DeclareMessage[Quote](w.Router)
	router.Topic(w.Router, "members/{name}", &router.TopicOptions{
		Presence: true, History: router.History{Messages: 10},
		Authorize: func(*router.Context, router.TopicMatch) error {
			allowed := w.allowed
			if w.hold != nil {
				<-w.hold
			}
			if !allowed {
				return errors.Errorf(errors.PermissionDenied, "no more")
			}
			return nil
		},
	})
	for n := range 4 {
		c := dialSession(t, w.Router, fmt.Sprint("member", n))
		require.NoError(t, c.conn.Subscribe("members/a", router.Present(strings.Repeat("secret", waitingAnswer/4/6))))
	}
	return w
}

// Text is a message of any length.
type Text struct {
	Text string `json:"text"`
}

func (Text) MessageType() string { return "TEXT" }

// fill fills the send queue of a client that does not read, except for less than an answer.
func (w *waitingRouter) fill(t *testing.T, c *sessionClient) {
	c.Pause()
	for synctest.Wait(); c.conn.QueueStats().Bytes < waitingQueue-waitingAnswer+500; synctest.Wait() {
		require.NoError(t, c.conn.Send(Text{strings.Repeat("x", 400)}))
	}
}

// answers lets a client read, and returns the types of the messages about topics in order.
func (c *sessionClient) answers() (all []string) {
	c.Resume()
	for synctest.Wait(); c.Pending() > 0; synctest.Wait() {
		frame := c.Next()
		if frame.Type != "TEXT" {
			all = append(all, frame.Type)
		}
	}
	return all
}

func TestRevoke_WhileAnswerToSubscribeWaits(t *testing.T) {
	revokeWhileWaiting(t, func(w *waitingRouter) (*sessionClient, string) {
		return dialSession(w.t, w.Router, "ann").hello(), `{"type":"$ws:subscribe","meta":{"correlationId":"s"},"payload":{"topic":"members/a","presence":true,"positions":true}}`
	}, func(t *testing.T, c *sessionClient, granted bool) {
		want := map[bool]string{true: "$ws:subscribed", false: "RPC_ERROR"}[granted]
		assert.Equal(t, []string{"$ws:unsubscribed", want}, c.answers())
	})
}

func TestRevoke_WhileAnswerToResumeWaits(t *testing.T) {
	revokeWhileWaiting(t, func(w *waitingRouter) (*sessionClient, string) {
		old := dialSession(w.t, w.Router, "ann").hello()
		synctest.Wait()
		old.Abort()
		synctest.Wait()
		return dialSession(w.t, w.Router, "ann"), fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"r"},"payload":{"token":%q,"topics":[{"topic":"members/a","presence":true,"positions":true},{"topic":"room/a"}]}}`, old.token)
	}, func(t *testing.T, c *sessionClient, granted bool) {
		c.Resume()
		time.Sleep(time.Second)
		frame := c.Next()
		for ; frame.Type != "$ws:resumed"; frame = c.Next() {
			assert.Contains(t, []string{"TEXT", "$ws:unsubscribed"}, frame.Type)
		}
		assert.True(t, c.conn.Subscribed("room/a"))
		assert.Equal(t, granted, strings.Contains(frame.Text, "secret"), frame.Text)
		assert.Equal(t, !granted, strings.Contains(frame.Text, "PERMISSION_DENIED"), frame.Text)
	})
}

// revokeWhileWaiting revokes the access of a client to members/a, and may grant it again, while the answer to a request waits.
func revokeWhileWaiting(t *testing.T, request func(*waitingRouter) (*sessionClient, string), check func(t *testing.T, c *sessionClient, granted bool)) {
	for access, granted := range map[string]bool{"denied": false, "granted again": true} {
		runSynctest(t, access, func(t *testing.T) {
			w := newWaitingRouter(t)
			c, text := request(w)
			w.hold = make(chan struct{})
			c.SendText(text)
			w.fill(t, c)
			close(w.hold)
			synctest.Wait()
			require.True(t, c.conn.Subscribed("members/a"), "its answer waits")
			w.allowed = granted
			require.NoError(t, w.Revoke(t.Context(), "t", "ann", "members/{name}"))
			check(t, c, granted)
			assert.Equal(t, granted, c.conn.Subscribed("members/a"))
		})
	}
}
