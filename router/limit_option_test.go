package router_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// A limitReport is what each reader has learned of the exceeded limits.
type limitReport struct {
	hook, refused, observed recorder[string]
	log                     lockedBuffer
	sessions                recorder[router.SessionEnd]
}

// newLimited returns a router whose limits are reported.
func newLimited(limits router.Limits) (*router.Router, *limitReport) {
	report := &limitReport{}
	r := router.New(&router.Options{
		Limits: limits, Authenticate: byUserToken,
		Logger:          slog.New(slog.NewTextHandler(&report.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Resume:          router.ResumeOptions{Within: 2 * time.Minute, OnSessionEnd: report.sessions.add},
		OnLimitExceeded: func(l router.LimitExceeded) { report.hook.add(l.Option + ": " + l.Error()) },
		OnRefused: func(r router.Refusal) {
			if r.Err != nil {
				report.refused.add(r.Err.Error())
			}
		},
	})
	r.Observe(func(e observe.Event) {
		if e.Limit != "" {
			report.observed.add(e.Limit)
		}
	})
	router.RPC(r, func(*router.Context, Bag) (Counted, error) { return Counted{}, nil })
	router.RPC(r, func(ctx *router.Context, _ Block) (Blocked, error) { <-ctx.Done(); return Blocked{}, nil })
	router.On(r, func(*router.Context, Say) error { return nil }).MaxMessageBytes(100)
	router.On(r, func(*router.Context, Blob) error { return nil })
	router.Topic(r, "room/{id}", &router.TopicOptions{Authorize: permit, MaxPerConn: 3})
	return r, report
}

// exceedQueue fills the send queue of a client that does not read.
func exceedQueue(t *testing.T, r *router.Router) {
	c := routertest.Dial(t, r)
	c.Pause()
	synctest.Wait()
	for range 10 {
		_ = onlyConn(t, r).Send(Say{"go", strings.Repeat("x", 100)})
	}
}

// subscribeTo subscribes a client to topics.
func subscribeTo(t *testing.T, r *router.Router, topics int) {
	c := routertest.Dial(t, r)
	for n := range topics - 1 {
		routertest.Subscribe(c, fmt.Sprint("room/", n))
	}
	assertHidden(t, routertest.SubscribeError(c, "room/last"))
}

// assertHidden expects that a client does not learn the option.
func assertHidden(t *testing.T, err *errors.Error) {
	t.Helper()
	assert.NotContains(t, fmt.Sprint(err.Code, err.Message, err.Details), "router.")
}

// exceededLimits exceed each field of Limits, and the options that override them.
var exceededLimits = map[string]struct {
	limits router.Limits
	exceed func(*testing.T, *router.Router)
	kind   string // how it is reported: "request", "message", "queue", "session"
}{
	"Limits.MaxMessageBytes": {router.Limits{MaxMessageBytes: 200}, func(t *testing.T, r *router.Router) {
		assertHidden(t, routertest.CallError(routertest.Dial(t, r), Bag{strings.Repeat("x", 200)}))
	}, "message"},
	"Route.MaxMessageBytes": {router.Limits{}, func(t *testing.T, r *router.Router) {
		c := routertest.Dial(t, r)
		c.Send(Say{"go", strings.Repeat("x", 100)})
		assertHidden(t, routertest.ReceiveError(c))
	}, "message"},
	"Limits.Elements": {router.Limits{Elements: 5}, func(t *testing.T, r *router.Router) {
		err := routertest.CallError(routertest.Dial(t, r), Bag{[]int{1, 2, 3, 4, 5}})
		assert.Equal(t, &errors.Error{
			Code: errors.InvalidArgument, Message: "payload must have at most 5 elements and members, not 6",
			Details: map[string]any{"field": "payload", "reason": "must have at most 5 elements and members, not 6"},
		}, err)
	}, "message"},
	"Limits.Concurrency": {router.Limits{Concurrency: 1}, func(t *testing.T, r *router.Router) {
		c := routertest.Dial(t, r)
		c.SendText(`{"type":"BLOCK","meta":{"correlationId":"a"}}`)
		assertHidden(t, routertest.CallError(c, Block{}))
	}, "message"},
	"Limits.Conns":        {router.Limits{Conns: 1}, refuseSecond, "request"},
	"Limits.ConnsPerIP":   {router.Limits{ConnsPerIP: 1}, refuseSecond, "request"},
	"Limits.ConnsPerUser": {router.Limits{ConnsPerUser: 1}, refuseSecond, "request"},
	"Limits.HandshakesPerIP": {
		router.Limits{HandshakesPerIP: router.Rate{PerSecond: 1}}, refuseSecond, "request",
	},
	"Limits.MessagesPerConn": {router.Limits{MessagesPerConn: router.Rate{PerSecond: 1}}, callTwice, "message"},
	"Limits.MessagesPerIP":   {router.Limits{MessagesPerIP: router.Rate{PerSecond: 1}}, callTwice, "message"},
	"Limits.QueueBytes":      {router.Limits{QueueBytes: 300}, exceedQueue, "queue"},
	"Limits.QueueMessages":   {router.Limits{QueueMessages: 2}, exceedQueue, "queue"},
	"Limits.Topics": {
		router.Limits{Topics: 2}, func(t *testing.T, r *router.Router) { subscribeTo(t, r, 3) }, "message",
	},
	"TopicOptions.MaxPerConn": {
		router.Limits{}, func(t *testing.T, r *router.Router) { subscribeTo(t, r, 4) }, "message",
	},
	"Limits.InboundBytes": {router.Limits{InboundBytes: 100_000, MaxMessageBytes: 1 << 20}, func(t *testing.T, r *router.Router) {
		message := longFrame(500_000)
		var read atomic.Int64
		waits, holds := dialPipe(t, r, &read), dialPipe(t, r, &read)
		waits.write(message[:1000])
		time.Sleep(time.Second)
		holds.write(message[:len(message)-1])
		time.Sleep(time.Second)
		waits.write(message[1000 : len(message)-1])
		time.Sleep(2 * time.Minute)
		for _, c := range []*pipeClient{waits, holds} {
			_ = c.Close()
			assert.NotContains(t, <-c.received, "router.")
		}
		time.Sleep(time.Minute)
	}, "message"},
	"Limits.SessionsPerUser": {router.Limits{SessionsPerUser: 1}, func(t *testing.T, r *router.Router) {
		for range 2 {
			dialSession(t, r, "ann").hello().Abort()
			synctest.Wait()
		}
	}, "session"},
}

func refuseSecond(t *testing.T, r *router.Router) {
	routertest.Dial(t, r, routertest.Token("ann"))
	response := routertest.Refused(t, r, routertest.Token("ann"))
	assert.Equal(t, http.StatusTooManyRequests, response.StatusCode)
	var body strings.Builder
	_ = response.Write(&body)
	assert.NotContains(t, body.String(), "router.")
}

func callTwice(t *testing.T, r *router.Router) {
	c := routertest.Dial(t, r)
	routertest.Call[Counted](c, Bag{})
	assertHidden(t, routertest.CallError(c, Bag{}))
}

// TestLimits_RefusalNamesItsOption exceeds each field of Limits, also one that is added later.
func TestLimits_RefusalNamesItsOption(t *testing.T) {
	for field := range reflect.TypeFor[router.Limits]().Fields() {
		assert.Contains(t, exceededLimits, "Limits."+field.Name, "exceededLimits must exceed every field")
	}
	for name, tt := range exceededLimits {
		runSynctest(t, name, func(t *testing.T) {
			r, report := newLimited(tt.limits)
			tt.exceed(t, r)
			synctest.Wait()
			option := "router." + name
			if tt.kind == "session" {
				ends := report.sessions.all()
				require.Len(t, ends, 1)
				assert.Equal(t, router.SessionLimited, ends[0].Reason)
				assert.Equal(t, option, ends[0].Option)
				return
			}
			hook := report.hook.all()
			require.NotEmpty(t, hook)
			assert.True(t, strings.HasPrefix(hook[0], option+": "), hook[0])
			assert.Contains(t, hook[0], ", set by "+option)
			assert.Contains(t, report.observed.all(), option)
			if tt.kind != "queue" {
				require.Len(t, report.refused.all(), 1)
				assert.Contains(t, report.refused.all()[0], ", set by "+option)
			}
			if tt.kind == "request" {
				assert.Contains(t, report.log.String(), option)
			}
		})
	}
}

// TestLimits_TooLongMessageIsReported closes the connection of a client, which is not answered.
func TestLimits_TooLongMessageIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, report := newLimited(router.Limits{})
		c := routertest.Dial(t, r)
		c.SendText(`{"type":"BAG","payload":{"items":"` + strings.Repeat("x", 1<<20) + `"}}`)
		assert.Equal(t, router.StatusTooBig, c.Closed().Code)
		time.Sleep(time.Minute) // after the close frame of the client
		want := "payload limit exceeded: 1048577 of 1048576, set by router.Limits.MaxMessageBytes"
		assert.Equal(t, []string{"router.Limits.MaxMessageBytes: " + want}, report.hook.all())
		assert.Equal(t, []string{want}, report.refused.all())
		assert.Equal(t, []string{"router.Limits.MaxMessageBytes"}, report.observed.all())
	})
}

// TestLimits_ElementsAreAnsweredWhateverTheAction sends what no limit of a rate or a size refuses.
func TestLimits_ElementsAreAnsweredWhateverTheAction(t *testing.T) {
	for _, action := range []router.LimitAction{router.ActionSend, router.ActionClose, router.ActionCustom} {
		runSynctest(t, fmt.Sprint(action), func(t *testing.T) {
			r := router.New(discardLogs(router.Options{LimitAction: action, Limits: router.Limits{Elements: 5}}))
			router.RPC(r, func(*router.Context, Bag) (Counted, error) { return Counted{}, nil })
			c := routertest.Dial(t, r)
			assert.Equal(t, errors.InvalidArgument, routertest.CallError(c, Bag{[]int{1, 2, 3, 4, 5}}).Code)
			routertest.Call[Counted](c, Bag{})
		})
	}
}

func TestLimitExceeded_Text(t *testing.T) {
	for want, l := range map[string]*router.LimitExceeded{
		"<nil>": nil,
		"rate limit exceeded: cost 1, capacity 8":                                     {Kind: router.LimitRate, Observed: 1, Limit: 8},
		`rate limit exceeded: cost 1, capacity 8, policy "chat", cooldown`:            {Kind: router.LimitRate, Observed: 1, Limit: 8, Policy: "chat", Reason: "cooldown"},
		"rate limit exceeded: cost 1, capacity 8, set by router.Limits.MessagesPerIP": {Kind: router.LimitRate, Observed: 1, Limit: 8, Policy: "MessagesPerIP", Option: "router.Limits.MessagesPerIP"},
		`in_flight limit exceeded: 3 of 2, policy "renders"`:                          {Kind: router.LimitConcurrency, Observed: 3, Limit: 2, Policy: "renders"},
		"connections limit exceeded: 1001 of 1000, set by router.Limits.ConnsPerIP":   {Kind: router.LimitConnections, Observed: 1001, Limit: 1000, Option: "router.Limits.ConnsPerIP"},
	} {
		assert.Equal(t, want, l.Error())
	}
}
