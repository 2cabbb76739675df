package router_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestResume_AllTopicsTogetherFitIntoTheQueue misses more on 50 topics than the send queue holds.
func TestResume_AllTopicsTogetherFitIntoTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const topics, each = 50, 30
		r := newSessionRouter(nil, func(o *router.Options) { o.Limits.QueueMessages = 400 })
		var presented []string
		for n := range topics {
			var at broker.Position
			for range each {
				var err error
				at, err = publishStored(t.Context(), r, fmt.Sprintf("feed/%d", n), Blob{})
				require.NoError(t, err)
			}
			presented = append(presented, fmt.Sprintf(`{"topic":"feed/%d","epoch":%q,"offset":0}`, n, at.Epoch))
		}
		old := dialSession(t, r, "ann").hello()
		old.Abort()
		c := dialSession(t, r, "ann")
		answer := c.resume(old.token, strings.Join(presented, ","))
		recovered := 0
		for _, topic := range answer.Topics {
			if *topic.Recovered {
				recovered++
				assert.Zero(t, topic.Offset)
			} else {
				assert.EqualValues(t, each, topic.Offset)
			}
		}
		assert.GreaterOrEqual(t, recovered, 5)
		assert.LessOrEqual(t, recovered*each, 200, "half of the queue")
		assert.Len(t, c.texts(), recovered*each)
		publishTexts(t, r, 1, 1)
	})
}

// TestResume_WorksInOneRoundTrip sends everything that a client sends when it returns at once, in
// different orders.
func TestResume_WorksInOneRoundTrip(t *testing.T) {
	hello := `{"type":"$ws:hello","meta":{"correlationId":"h"},"payload":{"session":true}}`
	plain := `{"type":"$ws:hello","meta":{"correlationId":"h"}}`
	for name, test := range map[string]struct {
		frames []string // %s is the token
		known  bool     // the token is valid
	}{
		"resume only":                      {[]string{"%s"}, true},
		"greeting, then resume":            {[]string{plain, "%s"}, true},
		"session, then resume":             {[]string{hello, "%s"}, true},
		"resume, then session":             {[]string{"%s", hello}, true},
		"session, then unknown token":      {[]string{hello, "%s"}, false},
		"unknown token, then session":      {[]string{"%s", hello}, false},
		"resume twice":                     {[]string{"%s", "%s", hello}, true},
		"session, resume, and the session": {[]string{hello, "%s", hello}, true},
	} {
		runSynctest(t, name, func(t *testing.T) {
			b := memory.NewBroker()
			one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
			old := dialSession(t, one, "ann").hello()
			require.NoError(t, old.conn.Subscribe("plain/a"))
			old.Abort()
			synctest.Wait()
			c := dialSession(t, two, "ann")
			require.NoError(t, c.conn.Subscribe("plain/own"))
			token := old.token
			if !test.known {
				token = token[:27] + "AAAAAAAAAAAAAAAAAAAAAAAAAA"
			}
			for n, frame := range test.frames {
				if frame == "%s" {
					frame = fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"r%d"},"payload":{"token":%q}}`, n, token)
				}
				c.SendText(frame)
			}
			synctest.Wait()
			var last string
			announced := 0
			for c.Pending() > 0 {
				frame := c.Next()
				var payload struct {
					Session *routertest.Session `json:"session"`
				}
				require.NoError(t, json.Unmarshal(frame.Payload, &payload))
				if payload.Session != nil {
					last = payload.Session.Token
				}
				if frame.Type == "$ws:subscribed" {
					announced++
					assert.Contains(t, frame.Text, `"plain/own"`)
				}
			}
			require.NotEmpty(t, last)
			assert.Equal(t, 1, announced)
			assert.Equal(t, test.known, c.conn.Subscribed("plain/a"))
			assert.Equal(t, test.known, strings.HasPrefix(last, old.token[:27]), "the session is the old one")
			c.Abort()
			synctest.Wait()
			again := dialSession(t, one, "ann").resume(last, "")
			again.topic(t, "plain/own")
			assert.Len(t, again.Topics, map[bool]int{true: 2, false: 1}[test.known])
		})
	}
}

// TestResume_PublicationsFollowTheAnswer publishes while the client resumes.
func TestResume_PublicationsFollowTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		one, two := newSessionRouter(b, nil), newSessionRouter(b, nil)
		old := dialSession(t, one, "ann").hello()
		require.NoError(t, old.conn.Subscribe("private/a"))
		synctest.Wait()
		frame := old.Next()
		var at subscribed
		require.NoError(t, json.Unmarshal(frame.Payload, &at))
		token := old.token
		next := 1
		for range 20 {
			stop := make(chan struct{})
			stopped := make(chan int)
			go func() {
				n := next
				for ; ; n++ {
					select {
					case <-stop:
						stopped <- n
						return
					default:
						err := one.Publish("private/a", Blob{Text: fmt.Sprint(n)}, router.Stored(t.Context(), nil))
						assert.NoError(t, err)
						time.Sleep(time.Millisecond)
					}
				}
			}()
			time.Sleep(5 * time.Millisecond)
			c := dialSession(t, two, "ann")
			answer := c.resume(token, fmt.Sprintf(`{"topic":"private/a","epoch":%q,"offset":%d}`, at.Epoch, at.Offset))
			token = c.token
			time.Sleep(5 * time.Millisecond)
			close(stop)
			next = <-stopped
			require.True(t, *answer.Topics[0].Recovered)
			require.Equal(t, at.Offset, answer.Topics[0].Offset)
			for _, text := range c.texts() {
				at.Offset++
				require.Equal(t, fmt.Sprint(at.Offset), text)
			}
			require.EqualValues(t, next-1, at.Offset)
		}
	})
}
