package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

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

func TestWork_IngressSeesAnEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder[string]
		r := newSessionRouter(nil, nil)
		router.Topic(r, "club/{name}", &router.TopicOptions{Authorize: permit, Presence: true, History: router.History{Messages: 30}})
		r.UseIngress(func(_ context.Context, in router.IngressContext) error {
			seen.add(fmt.Sprint(in.Type, " ", in.Work, " ", in.Size > 0))
			return nil
		})
		dialSession(t, r, "bob").call("$ws:subscribe", `{"topic":"club/a"}`)
		var epoch string
		for n := range 20 {
			at, err := publishStored(t.Context(), r, "club/a", Blob{Text: fmt.Sprint(n)})
			require.NoError(t, err)
			epoch = at.Epoch
		}
		synctest.Wait()
		ann := dialSession(t, r, "ann").hello()
		require.NoError(t, ann.conn.Subscribe("plain/a"))
		require.NoError(t, ann.conn.Subscribe("plain/b"))
		synctest.Wait()
		drain(ann)
		at := func(offset int) string {
			return fmt.Sprintf(`{"topic":"club/a","epoch":%q,"offset":%d}`, epoch, offset)
		}
		for payload, want := range map[string]string{
			`{"topic":"plain/x"}`:                "{1 0 0}",
			`{"topic":"club/a"}`:                 "{1 0 0}",
			`{"topic":"club/a","presence":true}`: "{1 0 1}",
			`{"topic":"club/none","epoch":"x"}`:  "{1 30 0}",
			`{"topic":"club/a","epoch":"old"}`:   "{1 30 0}",
			`{"topic":17}`:                       "{1 0 0}",
			at(15):                               "{1 5 0}",
			at(99):                               "{1 0 0}",
		} {
			before := len(seen.all())
			ann.call("$ws:subscribe", payload)
			ann.SendText(`{"type":"$ws:unsubscribe","payload":{"topic":"club/a"}}`)
			synctest.Wait()
			drain(ann)
			assert.Equal(t, "$ws:subscribe "+want+" true", seen.all()[before], payload)
		}
		ann.Abort()
		synctest.Wait()
		before := len(seen.all())
		c := dialSession(t, r, "ann")
		c.resume(ann.token, fmt.Sprintf(`{"topic":"club/a","epoch":%q,"offset":10,"presence":true},{"topic":"plain/a"},{"topic":"room/a"}`, epoch))
		assert.Equal(t, []string{"$ws:resume {0 0 0} true", "$ws:subscribe {4 10 1} false"}, seen.all()[before:])
	})
}

// TestResume_TopicsAreChargedLikeSubscriptions has a limiter of 100 subscriptions.
func TestResume_TopicsAreChargedLikeSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authorized := 0
		r := newSessionRouter(nil, nil)
		router.Topic(r, "club/{name}", &router.TopicOptions{Authorize: func(*router.Context, router.TopicMatch) error { authorized++; return nil }})
		r.UseIngress(ratelimit.New(memory.NewLimiter(limit.PerSecond(100)), &ratelimit.Options{Key: ratelimit.KeyPerUserOrIPPerType}))
		old := dialSession(t, r, "ann").hello()
		for n := range 30 {
			require.NoError(t, old.conn.Subscribe(fmt.Sprint("plain/", n)))
		}
		synctest.Wait()
		old.Abort()
		synctest.Wait()
		c := dialSession(t, r, "ann")
		request := func(topics int) string {
			var list []string
			for n := range topics {
				list = append(list, fmt.Sprintf(`{"topic":"club/%d"}`, n))
			}
			return fmt.Sprintf(`{"token":%q,"topics":[%s]}`, old.token, strings.Join(list, ","))
		}
		assert.Contains(t, c.call("$ws:resume", request(71)).Text, string(errors.FailedPrecondition), "101 topics can never be admitted")
		assert.Zero(t, authorized)
		for range 31 {
			c.call("$ws:subscribe", `{"topic":"room/a"}`)
		}
		assert.Contains(t, c.call("$ws:resume", request(40)).Text, `"retryAfterMs":10`)
		assert.Zero(t, authorized)
		time.Sleep(10 * time.Millisecond)
		assert.Contains(t, c.call("$ws:resume", request(40)).Text, `"$ws:resumed"`)
		assert.Equal(t, 40, authorized)
		assert.Contains(t, c.call("$ws:subscribe", `{"topic":"room/a"}`).Text, string(errors.ResourceExhausted))
	})
}

// TestRates_OldPositionsCostWhatTheyRead has a client that asks for the same 100 messages again and
// again.
func TestRates_OldPositionsCostWhatTheyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSessionRouter(nil, nil)
		for range 100 {
			require.NoError(t, r.Publish("feed/a", Blob{}))
		}
		c := dialSession(t, r, "ann")
		frame := c.call("$ws:subscribe", `{"topic":"feed/a","positions":true}`)
		_, epoch, _ := strings.Cut(frame.Text, `"epoch":"`)
		epoch, _, _ = strings.Cut(epoch, `"`)
		admitted := 0
		for range 1000 {
			frame := c.call("$ws:subscribe", fmt.Sprintf(`{"topic":"feed/a","epoch":%q,"offset":0}`, epoch))
			if frame.Type == "RPC_ERROR" {
				break
			}
			admitted++
			synctest.Wait()
			drain(c)
		}
		assert.Equal(t, 385, admitted, "each costs 26 of 10,000")
	})
}
