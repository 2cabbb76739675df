package router_test

import (
	"fmt"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
)

// Count is a stream of the numbers below To; without an end if To is 0.
type Count struct {
	To int `json:"to"`
}

func (Count) MessageType() string { return "COUNT" }

// Counted is a reply of Count.
type Counted struct {
	Sum int `json:"sum"`
}

func (Counted) MessageType() string { return "COUNTED" }

// count is a handler of Count.
func count(_ *router.Context, m Count) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for n := 0; m.To == 0 || n < m.To; n++ {
			if !yield(n, nil) {
				return
			}
		}
	}
}

// A streamRouter has the stream Count and records what happens to it.
type streamRouter struct {
	*router.Router
	events   recorder[string]
	failures recorder[string]
}

// newStreamRouter returns a router with handle, or with count if that is nil.
func newStreamRouter(opts router.Options, handle func(*router.Context, Count) iter.Seq2[int, error]) (*streamRouter, *router.Route) {
	s := &streamRouter{}
	opts.OnError = func(report router.ErrorReport) { s.failures.add(report.Err.Error()) }
	s.Router = router.New(discardLogs(opts))
	s.Observe(func(e observe.Event) {
		switch {
		case e.Type != "COUNT":
		case e.Kind == observe.Started:
			s.events.add("started")
		case e.Kind == observe.Handled:
			s.events.add("handled")
		case e.Kind == observe.Finished:
			s.events.add("finished")
		case e.Kind == observe.Completed:
			s.events.add("completed " + string(e.Code))
		case e.Kind == observe.Panicked:
			s.events.add("panicked in " + e.Reason)
		}
	})
	if handle == nil {
		handle = count
	}
	return s, router.Stream(s, handle)
}

func TestStream_SendsItemsThenEnd(t *testing.T) {
	s, _ := newStreamRouter(router.Options{}, nil)
	server := httptest.NewServer(s)
	defer server.Close()
	ws := dialServer(t, server)
	write(t, ws, websocket.MessageText, `{"type":"COUNT","meta":{"correlationId":"b7c1"},"payload":{"to":2}}`)
	assert.Equal(t, `{"data":0,"meta":{"correlationId":"b7c1"},"payload":0,"type":"$ws:rpc-progress"}`, read(t, ws))
	assert.Equal(t, `{"data":1,"meta":{"correlationId":"b7c1"},"payload":1,"type":"$ws:rpc-progress"}`, read(t, ws))
	assert.Equal(t, `{"meta":{"correlationId":"b7c1"},"type":"$ws:stream-end"}`, read(t, ws))
	require.Eventually(t, func() bool { return len(s.events.all()) == 4 }, time.Minute, time.Millisecond)
	assert.Equal(t, []string{"started", "handled", "completed ", "finished"}, s.events.all())
	assert.Empty(t, s.failures.all())

	// Without a correlation ID, as for a call.
	write(t, ws, websocket.MessageText, `{"type":"COUNT","payload":{"to":1}}`)
	assert.Equal(t, `{"data":0,"meta":{},"payload":0,"type":"$ws:rpc-progress"}`, read(t, ws))
	assert.Equal(t, `{"meta":{},"type":"$ws:stream-end"}`, read(t, ws))
}

func TestStream_EndIsReplyOrError(t *testing.T) {
	for name, tt := range map[string]struct {
		handle func(*router.Context, Count) iter.Seq2[int, error]
		items  int
		reply  bool
		code   errors.Code // of the error that is the answer
		report string      // of the private part of the error
	}{
		"without items": {handle: func(*router.Context, Count) iter.Seq2[int, error] {
			return func(func(int, error) bool) {}
		}},
		"reply": {items: 3, reply: true, handle: func(ctx *router.Context, _ Count) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				if yield(0, nil) && yield(1, nil) && yield(2, nil) {
					ctx.SetReply(Counted{3})
				}
			}
		}},
		"reply set by the handler": {items: 3, reply: true, handle: func(ctx *router.Context, m Count) iter.Seq2[int, error] {
			ctx.SetReply(Counted{3})
			return count(ctx, Count{3})
		}},
		"error": {items: 1, code: errors.NotFound, handle: func(*router.Context, Count) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				_ = yield(0, nil) && yield(1, errors.Errorf(errors.NotFound, "no more"))
			}
		}},
		"private error": {code: errors.Internal, report: "named cookie not present", handle: func(*router.Context, Count) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) { yield(0, http.ErrNoCookie) }
		}},
		"nil iterator": {
			code: errors.Internal, report: "router: the iterator of the stream is nil; a stream without items needs one that yields nothing",
			handle: func(*router.Context, Count) iter.Seq2[int, error] { return nil },
		},
		"panic of the handler": {code: errors.Internal, report: "panic: fault", handle: func(*router.Context, Count) iter.Seq2[int, error] {
			panic("fault")
		}},
		"panic of the iterator": {items: 1, code: errors.Internal, report: "panic: fault", handle: func(*router.Context, Count) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				yield(0, nil)
				panic("fault")
			}
		}},
		"ignored yield": {
			code: errors.Internal, report: "panic: runtime error: range function continued iteration after function for loop body returned false",
			handle: func(*router.Context, Count) iter.Seq2[int, error] {
				return func(yield func(int, error) bool) {
					yield(0, errors.Errorf(errors.NotFound, "no more"))
					yield(1, nil)
				}
			},
		},
	} {
		runSynctest(t, name, func(t *testing.T) {
			s, _ := newStreamRouter(router.Options{}, tt.handle)
			conn := routertest.Dial(t, s)
			stream := routertest.Start(conn, Count{})
			items := 0
			for n := range routertest.Items[int](stream) {
				assert.Equal(t, items, n)
				items++
			}
			assert.Equal(t, tt.items, items)
			switch {
			case tt.reply:
				assert.Equal(t, Counted{3}, routertest.ReceiveAnswer[Counted](stream))
			case tt.code == "":
				stream.End()
			default:
				assert.Equal(t, tt.code, routertest.ReceiveAnswerError(stream).Code)
			}
			synctest.Wait()
			assert.Zero(t, conn.Pending(), "nothing follows the answer")
			if assert.Len(t, s.failures.all(), min(1, len(tt.report))); tt.report != "" {
				assert.Contains(t, s.failures.all()[0], tt.report)
			}
			assert.Contains(t, s.events.all(), "completed "+string(tt.code))
			assert.Equal(t, "finished", s.events.all()[len(s.events.all())-1])
		})
	}
}

func TestStream_ItemThatCannotBeSentEndsIt(t *testing.T) {
	for name, tt := range map[string]struct {
		item any
		code errors.Code
	}{
		"not encodable":         {math.NaN(), errors.Internal},
		"longer than the queue": {strings.Repeat("x", 600), errors.ResourceExhausted},
	} {
		runSynctest(t, name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{Limits: router.Limits{QueueBytes: 1000}}))
			var yields []bool
			finished := false
			router.Stream(r, func(*router.Context, Count) iter.Seq2[any, error] {
				return func(yield func(any, error) bool) {
					defer func() { finished = true }()
					for _, item := range []any{1, tt.item} {
						yields = append(yields, yield(item, nil))
					}
				}
			})
			conn := routertest.Dial(t, r)
			stream := routertest.Start(conn, Count{})
			assert.Equal(t, 1, routertest.NextItem[int](stream))
			assert.Equal(t, tt.code, routertest.ReceiveAnswerError(stream).Code)
			synctest.Wait()
			assert.Equal(t, []bool{true, false}, yields)
			assert.True(t, finished)
			assert.Zero(t, conn.Pending())
			routertest.Start(conn, Count{}) // the connection is open
			synctest.Wait()
			assert.Positive(t, conn.Pending())
		})
	}
}

func TestStream_MiddlewareWrapsAllItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, route := newStreamRouter(router.Options{}, nil)
		var log []string
		route.Use(func(next router.Handler) router.Handler {
			return func(ctx *router.Context) error {
				switch ctx.Message().(Count).To {
				case 7:
					return nil // without calling next
				case 8:
					ctx.SetReply(Counted{8})
					return nil
				}
				log = append(log, fmt.Sprint("before ", ctx.Reply()))
				err := next(ctx)
				log = append(log, "after "+ctx.Reply().MessageType())
				ctx.SetReply(Counted{42})
				return err
			}
		})
		conn := routertest.Dial(t, s)
		stream := routertest.Start(conn, Count{2})
		assert.Equal(t, Counted{42}, routertest.ReceiveAnswer[Counted](stream))
		assert.Equal(t, 2, conn.Pending(), "the items come before")
		assert.Equal(t, []string{"before <nil>", "after $ws:stream-end"}, log)
		assert.Equal(t, errors.Internal, routertest.ReceiveAnswerError(routertest.Start(conn, Count{7})).Code, "a stream without a reply")
		assert.Equal(t, Counted{8}, routertest.ReceiveAnswer[Counted](routertest.Start(conn, Count{8})))
	})
}

// TestStream_HoldsPermitUntilIteratorReturns aborts a stream whose iterator takes a minute to return.
func TestStream_HoldsPermitUntilIteratorReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStreamRouter(router.Options{Limits: router.Limits{Concurrency: 1}}, func(ctx *router.Context, _ Count) iter.Seq2[int, error] {
			return func(func(int, error) bool) {
				<-ctx.Done()
				time.Sleep(time.Minute)
			}
		})
		conn := routertest.Dial(t, s)
		first := routertest.Start(conn, Count{})
		synctest.Wait()
		first.Abort()
		assert.Equal(t, errors.Canceled, routertest.ReceiveAnswerError(first).Code)
		assert.Equal(t, errors.ResourceExhausted, routertest.ReceiveAnswerError(routertest.Start(conn, Count{})).Code)
		time.Sleep(time.Minute)
		synctest.Wait()
		last := routertest.Start(conn, Count{})
		synctest.Wait()
		last.Abort()
		assert.Equal(t, errors.Canceled, routertest.ReceiveAnswerError(last).Code)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{
			"started", "completed CANCELLED", // the first
			"completed RESOURCE_EXHAUSTED",
			"handled", "finished", // the first
			"started", "completed CANCELLED", "handled", "finished",
		}, s.events.all())
	})
}

func TestStream_HasDeadlineOnlyIfOneIsSet(t *testing.T) {
	for name, tt := range map[string]struct {
		route, client, want time.Duration // 0: none
	}{
		"none":                {},
		"route":               {route: time.Minute, want: time.Minute},
		"client":              {client: time.Minute, want: time.Minute},
		"client below route":  {route: time.Hour, client: time.Minute, want: time.Minute},
		"client above route":  {route: time.Minute, client: time.Hour, want: time.Minute},
		"above Timeouts.Call": {client: time.Hour, want: time.Hour},
	} {
		runSynctest(t, name, func(t *testing.T) {
			var yields recorder[bool]
			s, route := newStreamRouter(router.Options{Timeouts: router.Timeouts{Call: time.Second}}, func(ctx *router.Context, _ Count) iter.Seq2[int, error] {
				return func(yield func(int, error) bool) {
					deadline, ok := ctx.Deadline()
					assert.Equal(t, tt.want > 0, ok)
					if ok {
						assert.Equal(t, tt.want, time.Until(deadline))
					}
					select {
					case <-ctx.Done():
					case <-time.After(24 * time.Hour):
					}
					yields.add(yield(0, nil))
				}
			})
			if tt.route > 0 {
				route.Timeout(tt.route)
			}
			conn := routertest.Dial(t, s)
			opts := []routertest.StartOption{}
			if tt.client > 0 {
				opts = append(opts, routertest.Timeout(tt.client))
			}
			stream := routertest.Start(conn, Count{}, opts...)
			start := time.Now()
			synctest.Wait()
			if tt.want == 0 {
				time.Sleep(24 * time.Hour)
				assert.Equal(t, 0, routertest.NextItem[int](stream))
				stream.End()
				assert.Equal(t, []bool{true}, yields.all())
				return
			}
			time.Sleep(tt.want)
			assert.Equal(t, errors.DeadlineExceeded, routertest.ReceiveAnswerError(stream).Code)
			assert.Equal(t, tt.want, time.Since(start))
			synctest.Wait()
			assert.Equal(t, []bool{false}, yields.all())
			assert.Contains(t, s.events.all(), "completed DEADLINE_EXCEEDED")
			assert.Empty(t, s.failures.all())
		})
	}
}

// Channels cannot be encoded.
type Channels struct {
	C chan int
}

func TestStream_RegistrationMistakesPanic(t *testing.T) {
	r := router.New(nil)
	assert.PanicsWithValue(t, "", func() {
		defer panicPattern(t, `stream_test.go:\d+: the handler of router_test.Count is nil; it must be a function`)
		router.Stream[Count, int](r, nil)
	})
	assert.PanicsWithValue(t, "", func() {
		defer panicPattern(t, `stream_test.go:\d+: items of type router_test.Channels cannot be encoded as JSON`)
		router.Stream(r, func(*router.Context, Count) iter.Seq2[Channels, error] { return nil })
	})
	router.Stream(r, count)
	assert.PanicsWithValue(t, "", func() {
		defer panicPattern(t, `"COUNT" registered at .*stream_test.go:\d+ and at .*stream_test.go:\d+`)
		router.RPC(r, func(*router.Context, Count) (Counted, error) { return Counted{}, nil })
	})
}

// panicPattern replaces the text of a panic that matches a pattern by "". It must be deferred.
func panicPattern(t *testing.T, pattern string) {
	v := recover()
	if assert.Regexp(t, pattern, v) {
		v = ""
	}
	panic(v)
}

func TestStream_ItemsHaveFormatOfConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		codec := cbor.New(nil)
		r := router.New(discardLogs(router.Options{Codecs: []router.Codec{codec}}))
		router.Stream(r, count)
		conn := routertest.Dial(t, r, routertest.Codec(codec))
		stream := routertest.Start(conn, Count{3}, routertest.Credit(1))
		want := 0
		for n := range routertest.Items[int](stream) {
			assert.Equal(t, want, n)
			want++
			synctest.Wait()
			assert.Equal(t, want/3, conn.Pending(), "only the end needs no credit")
		}
		assert.Equal(t, 3, want)
		stream.End()
	})
}
