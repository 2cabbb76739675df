package router_test

import (
	"fmt"
	"iter"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

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

func TestStream_EndIsReplyOrError(t *testing.T) {
	for name, tt := range map[string]struct {
		handle func(*router.Context, Count) iter.Seq2[int, error]
		items  int
		code   errors.Code // of the error that is the answer
		report string      // of the private part of the error
	}{
		"reply": {items: 3, handle: func(ctx *router.Context, _ Count) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				if yield(0, nil) && yield(1, nil) && yield(2, nil) {
					ctx.SetReply(Counted{3})
				}
			}
		}},
		"reply set by the handler": {items: 3, handle: func(ctx *router.Context, m Count) iter.Seq2[int, error] {
			ctx.SetReply(Counted{3})
			return count(ctx, Count{3})
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
			if tt.code == "" {
				assert.Equal(t, Counted{3}, routertest.ReceiveAnswer[Counted](stream))
			} else {
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
