package router_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
)

// userHistory is that of the routers in these tests, unless they say otherwise.
var userHistory = router.History{Messages: 100}

// newUserLogRouter returns a router with sessions and a history for each user.
func newUserLogRouter(b broker.Broker, change func(*router.Options)) *router.Router {
	return newSessionRouter(b, func(o *router.Options) {
		o.UserHistory = userHistory
		if change != nil {
			change(o)
		}
	})
}

// sendTexts sends messages to a user of the tenant "t", and waits until they have arrived.
func sendTexts(t *testing.T, r *router.Router, user string, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		_, err := r.SendToUser("t", user, Blob{Text: fmt.Sprint(n)})
		require.NoError(t, err)
	}
	synctest.Wait()
}

// A userLogMeta is the position of a message to a user.
type userLogMeta struct {
	Topic  *string `json:"topic"`
	Offset uint64  `json:"offset"`
}

// A logClient is a client with a session that follows the log of its user, and fails the test if a
// message is repeated or left out without a notice.
type logClient struct {
	*sessionClient

	epoch  string
	offset uint64
	lost   []string // notices
}

// dialLog connects a client that greets and learns the position of the log.
func dialLog(t *testing.T, r *router.Router, user string) *logClient {
	t.Helper()
	c := &logClient{sessionClient: dialSession(t, r, user).hello()}
	require.Empty(t, c.received())
	require.NotEmpty(t, c.epoch)
	return c
}

// resumeOn continues the session on another connection.
func (c *logClient) resumeOn(r *router.Router, user string) *logClient {
	c.t.Helper()
	next := &logClient{sessionClient: dialSession(c.t, r, user), epoch: c.epoch, offset: c.offset}
	next.continued(next.resume(c.token, fmt.Sprintf(`{"topic":"","epoch":%q,"offset":%d}`, c.epoch, c.offset)))
	return next
}

// continued handles the answer to a resume.
func (c *logClient) continued(answer resumed) {
	c.t.Helper()
	at := answer.topic(c.t, "")
	require.Nil(c.t, at.Error)
	if !*at.Recovered {
		c.lost = append(c.lost, "resume")
	} else {
		require.Equal(c.t, c.epoch, at.Epoch)
		require.Equal(c.t, c.offset, at.Offset)
	}
	c.epoch, c.offset = at.Epoch, at.Offset
}

// received returns the texts of the messages that have arrived, and follows notices.
func (c *logClient) received() (texts []string) {
	c.t.Helper()
	synctest.Wait()
	for c.Pending() > 0 {
		frame := c.Next()
		switch frame.Type {
		case "BLOB":
			at := metaOf(c.t, frame.Text)
			require.NotNil(c.t, at.Topic, frame.Text)
			require.Empty(c.t, *at.Topic)
			require.Equal(c.t, c.offset+1, at.Offset, frame.Text)
			c.offset = at.Offset
			var blob Blob
			require.NoError(c.t, json.Unmarshal(frame.Payload, &blob))
			texts = append(texts, blob.Text)
		case "$ws:subscribed", "$ws:position":
			var m struct {
				resumedTopic

				Lost *struct{ From, To uint64 }
			}
			require.NoError(c.t, json.Unmarshal(frame.Payload, &m))
			require.Empty(c.t, m.Topic, frame.Text)
			if m.Lost != nil {
				c.lost = append(c.lost, fmt.Sprint(m.Lost.From, "-", m.Lost.To))
			}
			c.epoch, c.offset = m.Epoch, m.Offset
		default:
			require.Fail(c.t, "unexpected", frame.Text)
		}
	}
	return texts
}

func metaOf(t *testing.T, text string) userLogMeta {
	t.Helper()
	var message struct {
		Meta userLogMeta `json:"meta"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &message))
	return message.Meta
}

// numbers returns the texts of messages.
func numbers(from, to int) (texts []string) {
	for n := from; n <= to; n++ {
		texts = append(texts, fmt.Sprint(n))
	}
	return texts
}
