package router_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// TestStream_SendsExactlyGrantedItems grants credits one at a time, for all small numbers of items and
// of initial credits.
func TestStream_SendsExactlyGrantedItems(t *testing.T) {
	for items := 1; items <= 5; items++ {
		for initial := range 7 {
			runSynctest(t, fmt.Sprintf("%d items, %d credits", items, initial), func(t *testing.T) {
				s, _ := newStreamRouter(router.Options{}, nil)
				conn := routertest.Dial(t, s)
				stream := routertest.Start(conn, Count{items}, routertest.Credit(int64(initial)))
				granted := initial
				for ; granted < items; granted++ {
					synctest.Wait()
					assert.Equal(t, granted, conn.Pending(), "no item more than credits, and no end")
					stream.Grant(1)
				}
				synctest.Wait()
				assert.Equal(t, items+1, conn.Pending(), "the end needs no credit")
				want := 0
				for n := range routertest.Items[int](stream) {
					assert.Equal(t, want, n)
					want++
				}
				assert.Equal(t, items, want)
				stream.End()
			})
		}
	}
}

func TestStream_ErrorNeedsNoCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStreamRouter(router.Options{}, func(*router.Context, Count) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) { yield(0, errors.Errorf(errors.NotFound, "nothing")) }
		})
		stream := routertest.Start(routertest.Dial(t, s), Count{}, routertest.Credit(0))
		assert.Equal(t, errors.NotFound, routertest.ReceiveAnswerError(stream).Code)
	})
}

// TestStream_SlowConsumerBoundsItemsAhead consumes items slowly, and grants one for each.
func TestStream_SlowConsumerBoundsItemsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items, window = 500, 8
		s, _ := newStreamRouter(router.Options{}, nil)
		conn := routertest.Dial(t, s)
		stream := routertest.Start(conn, Count{items}, routertest.Credit(window))
		want := 0
		for n := range routertest.Items[int](stream) {
			assert.Equal(t, want, n)
			want++
			synctest.Wait()
			assert.LessOrEqual(t, conn.Pending(), window)
		}
		assert.Equal(t, items, want)
		stream.End()
	})
}

func TestStream_ProgressWaitUsesCreditAndProgressDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStreamRouter(router.Options{}, func(ctx *router.Context, _ Count) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				assert.NoError(t, ctx.ProgressWait(1))
				assert.NoError(t, ctx.Progress(2))
				_ = yield(3, nil) && yield(4, nil)
			}
		})
		conn := routertest.Dial(t, s)
		stream := routertest.Start(conn, Count{}, routertest.Credit(2))
		for want := 1; want <= 3; want++ {
			assert.Equal(t, want, routertest.NextItem[int](stream))
		}
		synctest.Wait()
		assert.Zero(t, conn.Pending())
		stream.Grant(1)
		assert.Equal(t, 4, routertest.NextItem[int](stream))
		stream.End()
	})
}

// TestStream_CreditAfterLongPayload sends meta behind a payload that the head parser does not read.
func TestStream_CreditAfterLongPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStreamRouter(router.Options{}, nil)
		conn := routertest.Dial(t, s)
		conn.SendText(fmt.Sprintf(`{"type":"COUNT","payload":{"pad":%q,"to":5},"meta":{"correlationId":"a","credit":2}}`, strings.Repeat("x", 10_000)))
		synctest.Wait()
		assert.Equal(t, 2, conn.Pending())
		conn.SendText(fmt.Sprintf(`{"type":"$ws:credit","payload":%q,"meta":{"correlationId":"a","credit":3}}`, strings.Repeat("x", 10_000)))
		synctest.Wait()
		assert.Equal(t, 6, conn.Pending())
	})
}

func TestStream_LargestCreditsNeverOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStreamRouter(router.Options{}, nil)
		conn := routertest.Dial(t, s)
		stream := routertest.Start(conn, Count{100}, routertest.Credit(1<<53-1))
		for range 1100 { // more than 2^63 in total
			stream.Grant(1<<53 - 1)
		}
		for range routertest.Items[int](stream) {
			continue
		}
		stream.End()
	})
}

// TestStream_InvalidCreditsAndAborts has the stream "s" with 1 credit, the stream "free" without, and
// the call "c" open, and another connection with the stream "s".
func TestStream_InvalidCreditsAndAborts(t *testing.T) {
	const invalid = `"code":"INVALID_ARGUMENT"`
	for name, tt := range map[string]struct {
		text string
		want []string // contained in the only answer; nil: none
	}{
		"credit is missing":            {`{"type":"$ws:credit","meta":{"correlationId":"s"}}`, []string{invalid, `"field":"meta.credit"`}},
		"meta is missing":              {`{"type":"$ws:credit"}`, []string{invalid}},
		"credit is negative":           {`{"type":"$ws:credit","meta":{"correlationId":"s","credit":-1}}`, []string{invalid}},
		"credit is a float":            {`{"type":"$ws:credit","meta":{"correlationId":"s","credit":1.5}}`, []string{invalid}},
		"credit has an exponent":       {`{"type":"$ws:credit","meta":{"correlationId":"s","credit":1e3}}`, []string{invalid}},
		"credit is a string":           {`{"type":"$ws:credit","meta":{"correlationId":"s","credit":"1"}}`, []string{invalid}},
		"credit is null":               {`{"type":"$ws:credit","meta":{"correlationId":"s","credit":null}}`, []string{invalid}},
		"credit is above 2^53-1":       {`{"type":"$ws:credit","meta":{"correlationId":"s","credit":9007199254740992}}`, []string{invalid}},
		"invalid credit before the ID": {`{"type":"$ws:credit","meta":{"credit":-1,"correlationId":"s"}}`, []string{invalid}},
		"credit of 0":                  {`{"type":"$ws:credit","meta":{"correlationId":"s","credit":0}}`, nil},
		"credit for an unknown ID":     {`{"type":"$ws:credit","meta":{"correlationId":"x","credit":5}}`, nil},
		"credit without an ID":         {`{"type":"$ws:credit","meta":{"credit":5}}`, nil},
		"credit for a call":            {`{"type":"$ws:credit","meta":{"correlationId":"c","credit":5}}`, nil},
		"credit for a finished stream": {`{"type":"$ws:credit","meta":{"correlationId":"done","credit":5}}`, nil},
		"credit without need":          {`{"type":"$ws:credit","meta":{"correlationId":"free","credit":5}}`, nil},
		"credit of another connection": {`{"type":"$ws:credit","meta":{"correlationId":"foreign","credit":5}}`, nil},
		"abort of an unknown ID":       {`{"type":"$ws:abort","meta":{"correlationId":"x"}}`, nil},
		"abort without an ID":          {`{"type":"$ws:abort"}`, nil},
		"abort of a finished stream":   {`{"type":"$ws:abort","meta":{"correlationId":"done"}}`, nil},
		"abort of another connection":  {`{"type":"$ws:abort","meta":{"correlationId":"foreign"}}`, nil},
		"abort with invalid meta":      {`{"type":"$ws:abort","meta":{"correlationId":"s","credit":-1}}`, []string{invalid}},
		"stream with a negative credit": {
			`{"type":"COUNT","meta":{"correlationId":"new","credit":-1},"payload":{}}`, []string{invalid, `"RPC_ERROR"`, `"correlationId":"new"`},
		},
		"stream with a float":            {`{"type":"COUNT","meta":{"correlationId":"new","credit":0.5},"payload":{}}`, []string{invalid, `"correlationId":"new"`}},
		"stream with credit but no ID":   {`{"type":"COUNT","meta":{"credit":5},"payload":{}}`, []string{invalid, "meta.credit requires meta.correlationId"}},
		"stream with the ID of another":  {`{"type":"COUNT","meta":{"correlationId":"s","credit":5},"payload":{}}`, []string{invalid}},
		"credit above the limit":         {`{"type":"$ws:credit","meta":{"correlationId":"s","credit":5,"limited":1}}` + strings.Repeat(" ", 500), []string{`"code":"RESOURCE_EXHAUSTED"`}},
		"event with credit, not charged": {`{"type":"NOTHING","meta":{"credit":5}}`, nil},
	} {
		runSynctest(t, name, func(t *testing.T) {
			s, _ := newStreamRouter(router.Options{}, nil)
			router.RPC(s, func(ctx *router.Context, m Echo) (Echoed, error) { <-ctx.Done(); return Echoed(m), nil })
			router.On(s, func(*router.Context, Nothing) error { return nil })
			s.UseIngress(func(_ context.Context, in router.IngressContext) error {
				if in.Size > 500 {
					assert.Equal(t, "$ws:credit", in.Type)
					return limitError()
				}
				return nil
			})
			conn, other := routertest.Dial(t, s), routertest.Dial(t, s)
			other.SendText(`{"type":"COUNT","meta":{"correlationId":"foreign","credit":1},"payload":{"to":10}}`)
			conn.SendText(`{"type":"COUNT","meta":{"correlationId":"done"},"payload":{"to":1}}`)
			conn.SendText(`{"type":"COUNT","meta":{"correlationId":"s","credit":1},"payload":{"to":2}}`)
			conn.SendText(`{"type":"ECHO","meta":{"correlationId":"c","credit":1},"payload":{"n":1}}`)
			synctest.Wait()
			for range 3 {
				assert.NotContains(t, conn.Next().Text, "ERROR")
			}
			assert.Equal(t, "$ws:rpc-progress", other.Next().Type)
			conn.SendText(tt.text)
			synctest.Wait()
			if tt.want != nil {
				frame := conn.Next()
				for _, part := range tt.want {
					assert.Contains(t, frame.Text, part)
				}
				if !strings.Contains(tt.text, `"new"`) {
					assert.Equal(t, "ERROR", frame.Type)
					assert.Empty(t, frame.Meta.CorrelationID, "the ID belongs to the stream")
				}
			}
			assert.Zero(t, conn.Pending()+other.Pending(), "the open streams and calls are not affected")
			conn.SendText(`{"type":"$ws:credit","meta":{"correlationId":"s","credit":1}}`)
			assert.Equal(t, "$ws:rpc-progress", conn.Next().Type)
			assert.Equal(t, "$ws:stream-end", conn.Next().Type)
			other.SendText(`{"type":"$ws:abort","meta":{"correlationId":"foreign"}}`)
			assert.Equal(t, errors.Canceled, routertest.ReceiveError(other).Code)
		})
	}
}

// defaultSendTimeout is the default of Timeouts.Send.
const defaultSendTimeout = 10 * time.Minute

// slowReads are timeouts under which a client that reads nothing stays connected. Timeouts.Send has
// its default.
var slowReads = router.Timeouts{Message: 24 * time.Hour, Ping: 24 * time.Hour, Call: 24 * time.Hour}

// TestStream_EndsWhenClientTakesNothing waits in both places for exactly the timeout, and then opens
// another stream in the place of the first.
func TestStream_EndsWhenClientTakesNothing(t *testing.T) {
	for where, start := range waitingStreams() {
		runSynctest(t, where, func(t *testing.T) {
			p := &probe{}
			limits := router.Limits{QueueMessages: 8, Concurrency: 1}
			s, _ := newStreamRouter(router.Options{Limits: limits, Timeouts: slowReads}, p.handle)
			client, stream := start(t, s.Router)
			time.Sleep(defaultSendTimeout - time.Nanosecond)
			synctest.Wait()
			assert.Zero(t, p.deferred.Load())
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			assert.EqualValues(t, 1, p.deferred.Load())
			assert.Equal(t, p.sent.Load()+1, p.yields.Load())
			client.Resume()
			assert.Equal(t, errors.DeadlineExceeded, routertest.ReceiveAnswerError(stream).Code)
			synctest.Wait()
			assert.ElementsMatch(t, []string{"started", "handled", "completed DEADLINE_EXCEEDED", "finished"}, s.events.all())
			assert.Empty(t, s.failures.all(), "the client is at fault, not the server")
			assert.Equal(t, 0, routertest.NextItem[int](routertest.Start(client, Count{}, routertest.Credit(1))))
		})
	}
}

// TestStream_LivesWhileClientTakesItems grants a credit just in time, for a day.
func TestStream_LivesWhileClientTakesItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStreamRouter(router.Options{}, (&probe{}).handle)
		stream := routertest.Start(routertest.Dial(t, s), Count{}, routertest.Credit(1))
		for n := range 24 * 6 {
			assert.Equal(t, n, routertest.NextItem[int](stream))
			time.Sleep(defaultSendTimeout - time.Second)
			stream.Grant(1)
		}
	})
}

// TestConn_SendWaitEndsWhenClientTakesNothing fills the queue in the handler of an event, behind another
// producer that waits.
func TestConn_SendWaitEndsWhenClientTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(discardLogs(router.Options{Limits: router.Limits{QueueMessages: 4}, Timeouts: slowReads}))
		results := make(chan error, 2)
		router.On(r, func(ctx *router.Context, _ Blob) error {
			for {
				if err := ctx.SendWait(Nothing{}); err != nil {
					results <- err
					return nil
				}
			}
		}).Concurrent()
		client, conn := dialPaused(t, r)
		start := time.Now()
		client.Send(Blob{})
		client.Send(Blob{})
		for range 2 {
			err := <-results
			require.Error(t, err)
			assert.Equal(t, errors.DeadlineExceeded, errors.CodeOf(err))
			assert.Equal(t, defaultSendTimeout, time.Since(start))
		}
		client.Resume()
		synctest.Wait()
		require.NoError(t, conn.SendWait(t.Context(), Nothing{}), "the turn is free")
	})
}
