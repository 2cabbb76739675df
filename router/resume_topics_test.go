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
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestResume_EveryTopicHasItsResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		banned := false
		var reports recorder[string]
		newRouter := func() *router.Router {
			r := newSessionRouter(b, func(o *router.Options) {
				o.Limits.Topics = 8
				o.OnError = func(e router.ErrorReport) { reports.add(e.Err.Error()) }
			})
			router.Topic(r, "club/{name}", &router.TopicOptions{Presence: true, Authorize: func(_ *router.Context, topic router.TopicMatch) error {
				switch {
				case topic.Value("name") == "broken":
					panic("no database")
				case banned:
					return errors.Errorf(errors.PermissionDenied, "banned")
				}
				return nil
			}})
			return r
		}
		one, two := newRouter(), newRouter()
		old := dialSession(t, one, "ann").hello()
		for _, topic := range []string{"club/a", "plain/a", "private/a"} {
			require.NoError(t, old.conn.Subscribe(topic))
		}
		synctest.Wait()
		old.Abort()
		banned = true
		c := dialSession(t, two, "ann")
		answer := c.resume(old.token, `{"topic":"club/b"},{"topic":"club/broken"},{"topic":"private/b"},{"topic":"unknown"},{"topic":""},{"topic":"room/a","presence":true},{"topic":"feed/a","positions":true}`)
		codes := map[string]errors.Code{}
		for _, topic := range answer.Topics {
			if topic.Error != nil {
				codes[topic.Topic] = topic.Error.Code
			}
			assert.Equal(t, topic.Error == nil, c.conn.Subscribed(topic.Topic), topic.Topic)
		}
		assert.Equal(t, map[string]errors.Code{
			"club/a": errors.PermissionDenied, "club/b": errors.PermissionDenied, "club/broken": errors.Internal, "private/b": errors.PermissionDenied,
			"unknown": errors.NotFound, "": errors.InvalidArgument,
		}, codes)
		assert.True(t, *answer.topic(t, "feed/a").Recovered)
		assert.False(t, *answer.topic(t, "private/a").Recovered)
		assert.Len(t, reports.all(), 1, "the panic is reported")

		synctest.Wait()
		c.Abort()
		synctest.Wait()
		banned = false
		again := dialSession(t, one, "ann").resume(c.token, "")
		require.Len(t, again.Topics, 2, "the rejected topic has left the record, and the client's own were not in it")
		again.topic(t, "plain/a")
		again.topic(t, "private/a")
	})
}

func TestResume_NumberOfTopicsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, func(o *router.Options) { o.Limits.Topics = 3 })
		old := dialSession(t, r, "ann").hello()
		require.NoError(t, old.conn.Subscribe("plain/a"))
		require.NoError(t, old.conn.Subscribe("plain/b"))
		old.Abort()
		synctest.Wait()
		c := dialSession(t, r, "ann")
		topics := func(n int) string {
			var list []string
			for i := range n {
				list = append(list, fmt.Sprintf(`{"topic":"room/%d"}`, i))
			}
			return strings.Join(list, ",")
		}
		frame := c.call("$ws:resume", fmt.Sprintf(`{"token":%q,"topics":[%s]}`, old.token, topics(4)))
		assert.Contains(t, frame.Text, `"details":{"kind":"topics","observed":4,"limit":3}`)
		frame = c.call("$ws:resume", fmt.Sprintf(`{"token":%q,"topics":[{"topic":"room/1"},{"topic":"room/1"}]}`, old.token))
		assert.Contains(t, frame.Text, `"field":"topics.1.topic"`)
		answer := c.resume(old.token, topics(3))
		require.Len(t, answer.Topics, 5)
		subscribed := 0
		for _, topic := range answer.Topics {
			if topic.Error == nil {
				subscribed++
			} else {
				assert.Equal(t, errors.ResourceExhausted, topic.Error.Code)
			}
		}
		assert.Equal(t, 3, subscribed)
	})
}

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

// TestResume_SessionOfTheNewConnectionIsDeleted resumes on a connection that has opened a session.
func TestResume_SessionOfTheNewConnectionIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		old := dialSession(t, r, "ann").hello()
		c := dialSession(t, r, "ann").hello()
		unused := c.token
		c.resume(old.token, "")
		synctest.Wait()
		assert.Equal(t, errors.NotFound, dialSession(t, r, "ann").resumeError(unused))
		assert.Equal(t, errors.FailedPrecondition, c.resumeError(c.token), "it has this session")
		token := c.token
		assert.Equal(t, token, c.hello().token, "the greeting repeats the token")
	})
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

// TestResume_TopicReceivesTheState presents a topic with a state.
func TestResume_TopicReceivesTheState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		for n := range 3 {
			require.NoError(t, r.Publish("feed/a", Blob{Text: fmt.Sprint(n)}))
		}
		old := dialSession(t, r, "ann").hello()
		old.Abort()
		c := dialSession(t, r, "ann")
		answer := c.resume(old.token, `{"topic":"feed/a","state":true}`)
		assert.EqualValues(t, 3, answer.topic(t, "feed/a").Offset)
		assert.Empty(t, c.texts(), "messages without a key are no state")
	})
}
