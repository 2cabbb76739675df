package router_test

import (
	"iter"
	"log/slog"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/description"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

type (
	described      struct{ N int }
	describedCall  struct{ N int }
	describedReply struct{ N int }
	describedNote  struct{ N int }
	describedRows  struct{ N int }
	describedOther struct{ N int }
	percent        struct{ Percent int }
)

func (described) MessageType() string      { return "EVENT" }
func (describedCall) MessageType() string  { return "CALL" }
func (describedReply) MessageType() string { return "REPLY" }
func (describedNote) MessageType() string  { return "NOTE" }
func (describedRows) MessageType() string  { return "ROWS" }
func (describedOther) MessageType() string { return "NOTE" }

func describedRouter() *router.Router {
	r := router.New(&router.Options{Codecs: []router.Codec{cbor.New(nil)}, Timeouts: router.Timeouts{Call: 7 * time.Second}})
	router.Stream(r, func(*router.Context, describedRows) iter.Seq2[percent, error] { return nil }).
		Doc(router.RouteDoc{Reply: describedReply{}}).Timeout(time.Minute)
	router.On(r, func(*router.Context, described) error { return nil }).MaxMessageBytes(99)
	router.RPC(r, func(*router.Context, describedCall) (describedReply, error) { return describedReply{}, nil }).
		Doc(router.RouteDoc{
			Description: "Counts.", Progress: percent{},
			Errors: []errors.Code{errors.NotFound, "NO_LUCK", errors.NotFound}, ErrorDetails: map[errors.Code]any{errors.NotFound: percent{}},
		})
	router.DeclareMessage[describedNote](r)
	router.DeclareCall[describedCall, describedReply](r)
	router.Topic(r, "b/{id}", &router.TopicOptions{Messages: []router.Message{describedReply{}, describedNote{}}, History: router.History{Messages: 5}})
	router.Topic(r, "a", nil)
	return r
}

func TestDescribe_ReturnsRoutesDeclarationsAndTopics(t *testing.T) {
	d := describedRouter().Describe()
	message := func(m router.Message) description.Message {
		return description.Message{Type: m.MessageType(), Go: reflect.TypeOf(m)}
	}
	assert.Equal(t, []description.Route{
		{
			Message: message(describedCall{}), Kind: description.KindCall, Description: "Counts.", Reply: message(describedReply{}),
			Progress: reflect.TypeFor[percent](), Errors: []description.Error{{Code: errors.NotFound, Details: reflect.TypeFor[percent]()}, {Code: "NO_LUCK"}}, Timeout: 7 * time.Second,
		},
		{Message: message(described{}), Kind: description.KindEvent},
		{Message: message(describedRows{}), Kind: description.KindStream, Item: reflect.TypeFor[percent](), Reply: message(describedReply{}), Timeout: time.Minute},
	}, d.Routes)
	assert.Equal(t, []description.Message{message(describedNote{}), message(describedReply{})}, d.Sent)
	assert.Equal(t, []description.Call{{Message: message(describedCall{}), Reply: message(describedReply{})}}, d.Calls)
	assert.Equal(t, []description.Topic{
		{Pattern: "a"},
		{Pattern: "b/{id}", Messages: []string{"NOTE", "REPLY"}, History: broker.Retention{Messages: 5}},
	}, d.Topics)
	assert.Equal(t, []string{"penstock.v1.cbor"}, d.Codecs)
	assert.Equal(t, int64(99), d.MaxBytes["EVENT"])
	assert.Len(t, d.MaxBytes, 2)
	assert.Equal(t, d, describedRouter().Describe(), "the order is always the same")
}

func TestDescribe_ErrorsAreAllCodesOfPackageErrors(t *testing.T) {
	source, err := os.ReadFile("../errors/code.go")
	require.NoError(t, err)
	var want []errors.Code
	for _, match := range regexp.MustCompile(`Code = "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		want = append(want, errors.Code(match[1]))
	}
	slices.Sort(want)
	assert.Equal(t, want, router.New(nil).Describe().Errors)
}

func TestDescribe_CloseCodesAreThoseOfTheProtocol(t *testing.T) {
	page, err := os.ReadFile("../docs/protocol.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "## 5. Close codes")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "*Backoff*")
	var want, got []int
	for _, row := range regexp.MustCompile(`(?m)^\| ([\d, ]+) \|`).FindAllStringSubmatch(section, -1) {
		for code := range strings.SplitSeq(row[1], ", ") {
			n, err := strconv.Atoi(code)
			require.NoError(t, err)
			if n != 1005 && n != 1006 { // no close frame has them
				want = append(want, n)
			}
		}
	}
	for _, code := range router.New(nil).Describe().CloseCodes {
		got = append(got, code.Code)
		assert.NotEmpty(t, code.Reason)
	}
	slices.Sort(want)
	assert.Equal(t, want, got)
}

func TestDescribe_HasLimitsThatAllClientsShare(t *testing.T) {
	announce := func(in router.IngressContext) []router.AnnouncedLimit {
		limits := []router.AnnouncedLimit{{Name: "all", Capacity: 20, Refill: 1, Per: time.Second, Scope: router.ScopeUser, Cost: 2, Bucket: [4]string{in.Identity.UserID}}}
		if in.Identity.UserID == "user1" {
			limits = append(limits, router.AnnouncedLimit{Name: "one", Capacity: 20, Refill: 1, Per: time.Second})
		}
		if in.Type == "CALL" {
			limits[0].Cost, limits[0].Keep = -1, 3
		}
		return limits
	}
	r := router.New(&router.Options{AnnounceLimits: announce})
	router.On(r, func(*router.Context, described) error { return nil })
	router.On(r, func(*router.Context, describedCall) error { return nil })
	assert.Equal(t, []description.Limit{{
		Name: "all", Capacity: 20, Refill: 1, Per: time.Second, Scope: string(router.ScopeUser),
		Buckets: []description.Bucket{{Costs: map[string]int64{"EVENT": 2, "CALL": -1}, Keep: map[string]int64{"CALL": 3}}},
	}}, r.Describe().Limits)
}

func TestDescribe_HasNoLimitsIfAnnounceLimitsPanics(t *testing.T) {
	r := router.New(discardLogs(router.Options{
		AnnounceLimits: func(router.IngressContext) []router.AnnouncedLimit { panic("no identity") },
	}))
	router.On(r, func(*router.Context, described) error { return nil })
	assert.Empty(t, r.Describe().Limits)
}

func TestDeclarations_PanicOnMistakes(t *testing.T) {
	for name, tt := range map[string]struct {
		declare func(r *router.Router, event, call, stream *router.Route)
		want    string
	}{
		"two meanings": {func(r *router.Router, _, _, _ *router.Route) { router.DeclareMessage[describedOther](r) }, `"NOTE" is declared as router_test.describedNote at .*, and as router_test.describedOther`},
		"two replies":  {func(r *router.Router, _, _, _ *router.Route) { router.DeclareCall[describedCall, describedNote](r) }, `the call "CALL" is declared`},
		"pointer":      {func(r *router.Router, _, _, _ *router.Route) { router.DeclareMessage[*describedNote](r) }, "is a pointer"},
		"nil publication": {func(r *router.Router, _, _, _ *router.Route) {
			router.Topic(r, "n", &router.TopicOptions{Messages: []router.Message{nil}})
		}, `Messages\[0\] of "n".* is nil`},
		"progress of event":  {func(_ *router.Router, event, _, _ *router.Route) { event.Doc(router.RouteDoc{Progress: 1}) }, "only calls send progress"},
		"progress of stream": {func(_ *router.Router, _, _, stream *router.Route) { stream.Doc(router.RouteDoc{Progress: 1}) }, "only calls send progress"},
		"progress not JSON":  {func(_ *router.Router, _, call, _ *router.Route) { call.Doc(router.RouteDoc{Progress: make(chan int)}) }, "cannot be encoded as JSON"},
		"details not an object": {func(_ *router.Router, _, call, _ *router.Route) {
			call.Doc(router.RouteDoc{ErrorDetails: map[errors.Code]any{"A": "text"}})
		}, "must be a struct or a map"},
		"nil details": {func(_ *router.Router, _, call, _ *router.Route) {
			call.Doc(router.RouteDoc{ErrorDetails: map[errors.Code]any{"A": nil}})
		}, "must be a struct or a map"},
		"details not JSON": {func(_ *router.Router, _, call, _ *router.Route) {
			call.Doc(router.RouteDoc{ErrorDetails: map[errors.Code]any{"A": struct{ C chan int }{}}})
		}, "cannot be encoded as JSON"},
		"details of a code of the router": {func(_ *router.Router, _, call, _ *router.Route) {
			call.Doc(router.RouteDoc{ErrorDetails: map[errors.Code]any{errors.ResourceExhausted: percent{}}})
		}, "the router or a client library may end a call with this code"},
		"reply of call": {func(_ *router.Router, _, call, _ *router.Route) { call.Doc(router.RouteDoc{Reply: describedNote{}}) }, "only streams document a reply"},
		"twice": {func(_ *router.Router, _, _, stream *router.Route) {
			stream.Doc(router.RouteDoc{}).Doc(router.RouteDoc{})
		}, "is called twice"},
	} {
		t.Run(name, func(t *testing.T) {
			r := router.New(nil)
			router.DeclareMessage[describedNote](r)
			router.DeclareCall[describedCall, describedReply](r)
			event := router.On(r, func(*router.Context, described) error { return nil })
			call := router.RPC(r, func(*router.Context, describedCall) (describedReply, error) { return describedReply{}, nil })
			stream := router.Stream(r, func(*router.Context, describedRows) iter.Seq2[percent, error] { return nil })
			defer func() { assert.Regexp(t, tt.want, recover()) }()
			tt.declare(r, event, call, stream)
		})
	}
}

// TestObserveRefusals_CalledAfterOnRefused has an OnRefused that panics.
func TestObserveRefusals_CalledAfterOnRefused(t *testing.T) {
	var calls []string
	r := router.New(&router.Options{
		Authenticate: func(*http.Request) (router.Identity, error) {
			return router.Identity{UserID: "eve"}, errors.Errorf(errors.PermissionDenied, "banned")
		},
		OnRefused: func(router.Refusal) {
			calls = append(calls, "option")
			panic("OnRefused")
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	assert.PanicsWithValue(t, "router: ObserveRefusals needs a function", func() { r.ObserveRefusals(nil) })
	r.ObserveRefusals(func(refusal router.Refusal) { calls = append(calls, "observer of "+refusal.Identity.UserID) })
	routertest.Refused(t, r)
	assert.Equal(t, []string{"option", "observer of eve"}, calls)
	assert.Panics(t, func() { r.ObserveRefusals(func(router.Refusal) {}) }, "it serves")
}

// TestInspection_CountsCallsAndTokens looks at a connection while a call waits.
func TestInspection_CountsCallsAndTokens(t *testing.T) {
	r := router.New(&router.Options{Limits: router.Limits{MessagesPerConn: router.Rate{PerSecond: 1, Burst: 5}}})
	started, release := make(chan struct{}), make(chan struct{})
	router.RPC(r, func(c *router.Context, m Blob) (Blobbed, error) {
		close(started)
		<-release
		return Blobbed{}, c.Conn().Subscribe("news")
	})
	before := time.Now()
	client := routertest.Dial(t, r)
	answer := routertest.Start(client, Blob{})
	<-started
	for c := range r.Conns() {
		assert.WithinRange(t, c.OpenedAt(), before.Add(-time.Second), time.Now())
		found, ok := r.Host().Inspection.Conn(c.ID())
		require.True(t, ok)
		assert.Equal(t, 1, found.Calls)
		assert.Equal(t, 4, found.MessageTokens)
		assert.Equal(t, 5, found.MessageBurst)
		assert.Empty(t, found.Topics)
		close(release)
		routertest.ReceiveAnswer[Blobbed](answer)
		_, ok = r.Host().Inspection.Conn("none")
		assert.False(t, ok)
	}
}

func TestObserve_ReceivesEventsOfCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recorder[observe.Event]
		r := router.New(nil)
		r.Observe(func(e observe.Event) {
			e.Bytes = min(e.Bytes, 1)
			seen.add(e)
		})
		second := 0
		r.Observe(func(observe.Event) { second++ })
		router.RPC(r, func(_ *router.Context, m Echo) (Echo, error) {
			time.Sleep(time.Second)
			return m, nil
		})
		conn := routertest.Dial(t, r)
		routertest.Call[Echo](conn, Echo{1})
		synctest.Wait()
		echo := func(kind observe.Kind) observe.Event { return observe.Event{Kind: kind, Type: "ECHO"} }
		handled := echo(observe.Handled)
		handled.Duration = time.Second
		assert.Equal(t, []observe.Event{
			{Kind: observe.Opened, Transport: "websocket"},
			{Kind: observe.Read, Bytes: 1},
			echo(observe.Started), handled, echo(observe.Completed), echo(observe.Finished),
			{Kind: observe.Written, Count: 1, Bytes: 1},
		}, seen.all())
		assert.Equal(t, 7, second)
		assert.Equal(t, router.Stats{Conns: 1}, r.Stats())
		assert.Panics(t, func() { r.Observe(func(observe.Event) {}) }, "it serves")
		assert.Panics(t, func() { router.New(nil).Observe(nil) })
	})
}
