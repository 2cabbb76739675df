package router_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestAck_FollowsAdmissionAndPrecedesReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{Limits: router.Limits{Concurrency: 1}})
		client := routertest.Dial(t, s)
		for _, tt := range []struct{ text, then string }{
			{`{"type":"BLOB","meta":{"correlationId":"1","ack":true},"payload":{"n":1,"text":""}}`, ""},
			{`{"type":"__heartbeat","meta":{"correlationId":"2","ack":true}}`, "__heartbeat_ack"},
			{`{"type":"$ws:abort","meta":{"correlationId":"3","ack":true}}`, ""},
			{`{"type":"ECHO","meta":{"correlationId":"4","ack":true},"payload":{"n":1}}`, ""}, // waits behind the event
		} {
			client.SendText(tt.text)
			frame := client.Next()
			assert.Equal(t, "$ws:ack", frame.Type, tt.text)
			assert.NotEmpty(t, frame.Meta.CorrelationID, tt.text)
			assert.NotZero(t, frame.Meta.Timestamp)
			assert.Nil(t, frame.Payload)
			if tt.then != "" {
				assert.Equal(t, tt.then, client.Next().Type)
			}
		}
		client.SendText(`{"type":"ECHO","meta":{"correlationId":"5","ack":true},"payload":{"n":1}}`)
		assert.Equal(t, errors.ResourceExhausted, routertest.ReceiveError(client).Code, "a rejected message is not acknowledged")
		close(s.proceed)
		assert.Equal(t, "4", client.Next().Meta.CorrelationID)
		synctest.Wait()
		assert.Zero(t, client.Pending())
		assert.EqualValues(t, 5, s.charged.Load(), "acknowledgments cost nothing")
	})
}

func TestAck_OfRejectedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{})
		close(s.proceed)
		s.UseIngress(func(_ context.Context, in router.IngressContext) error {
			if in.Type == "BLOB" {
				return errors.Errorf(errors.PermissionDenied, "no")
			}
			return nil
		})
		client := routertest.Dial(t, s)
		for text, want := range map[string]errors.Code{
			`{"type":"BLOB","meta":{"correlationId":"1","ack":true},"payload":{}}`: errors.PermissionDenied,
			`{"type":"NONE","meta":{"correlationId":"1","ack":true},"payload":{}}`: errors.Unimplemented,
			`{"type":"ECHO","meta":{"ack":true},"payload":{"n":1}}`:                errors.InvalidArgument,
			`{"type":"__heartbeat","meta":{"ack":true}}`:                           errors.InvalidArgument,
			`{"type":"ECHO","meta":{"correlationId":"1","ack":1}}`:                 errors.InvalidArgument,
		} {
			client.SendText(text)
			assert.Equal(t, want, routertest.ReceiveError(client).Code, text)
		}
		// Validation follows the acknowledgment.
		client.SendText(`{"type":"ECHO","meta":{"correlationId":"1","ack":true},"payload":{"n":"x"}}`)
		assert.Equal(t, "$ws:ack", client.Next().Type)
		assert.Equal(t, errors.InvalidArgument, routertest.ReceiveError(client).Code)
		synctest.Wait()
		assert.Zero(t, client.Pending())
	})
}

// TestAck_ConfirmsInOrder sends acknowledged messages and others, as a client that paces itself does.
func TestAck_ConfirmsInOrder(t *testing.T) {
	r := router.New(discardLogs(router.Options{}))
	router.On(r, func(*router.Context, Blob) error { return nil })
	ws := dialServer(t, newTestServer(t, r))
	go func() {
		for n := range 1000 {
			ack := ""
			if n%10 == 9 {
				ack = `,"ack":true`
			}
			write(t, ws, 1, fmt.Sprintf(`{"type":"BLOB","meta":{"correlationId":"%d"%s},"payload":{"n":1,"text":""}}`, n, ack))
		}
	}()
	for n := 9; n < 1000; n += 10 {
		assert.Contains(t, read(t, ws), fmt.Sprintf(`"correlationId":"%d"`, n))
	}
}

// A Sheet is a long reply.
type Sheet struct{ Text string }

func (Sheet) MessageType() string { return "SHEET" }

const sheetBytes = 100 << 10

// heapInUse returns the bytes of the heap that are in use, without those of pools.
func heapInUse() int {
	for range 2 { // the first one moves what is in a sync.Pool aside
		runtime.GC()
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// sheetHandlers register handlers of Count that wait until ready is closed, and then send a sheet.
func sheetHandlers(sheet Sheet, ready <-chan struct{}) map[string]func(*router.Router) {
	return map[string]func(*router.Router){
		"a reply": func(r *router.Router) {
			router.RPC(r, func(*router.Context, Count) (Sheet, error) {
				<-ready
				return sheet, nil
			})
		},
		"an item": func(r *router.Router) {
			router.Stream(r, func(*router.Context, Count) iter.Seq2[Sheet, error] {
				return func(yield func(Sheet, error) bool) {
					<-ready
					yield(sheet, nil)
				}
			})
		},
		"SendWait": func(r *router.Router) {
			router.RPC(r, func(ctx *router.Context, _ Count) (Counted, error) {
				<-ready
				return Counted{}, ctx.SendWait(sheet)
			})
		},
	}
}

// TestConn_MessagesThatWaitAreNotEncoded has 64 handlers that send at the same time to a client that
// does not read. The sheets share their text, so that nearly all memory is that of encoded messages.
func TestConn_MessagesThatWaitAreNotEncoded(t *testing.T) {
	const calls, queueBytes = 64, 4 * sheetBytes
	sheet, formats := Sheet{strings.Repeat("x", sheetBytes)}, map[string]router.Codec{"JSON": nil, "CBOR": cbor.New(nil)}
	for what := range sheetHandlers(sheet, nil) {
		for format, codec := range formats {
			runSynctest(t, what+" as "+format, func(t *testing.T) {
				ready := make(chan struct{})
				r := router.New(discardLogs(router.Options{
					Limits: router.Limits{QueueBytes: queueBytes}, Timeouts: patient, Codecs: []router.Codec{formats["CBOR"]},
				}))
				sheetHandlers(sheet, ready)[what](r)
				var opts []routertest.Option
				if codec != nil {
					opts = append(opts, routertest.Codec(codec))
				}
				client := routertest.Dial(t, r, opts...)
				pending := make([]*routertest.Pending, calls)
				for n := range pending {
					pending[n] = routertest.Start(client, Count{})
				}
				synctest.Wait()
				client.Pause()
				before := heapInUse()
				close(ready)
				synctest.Wait()
				// An item is encoded twice, and a frame may have a larger buffer than it needs.
				assert.Less(t, heapInUse()-before, 2*(queueBytes+4*sheetBytes))
				client.Resume()
				for _, p := range pending {
					switch what {
					case "a reply":
						assert.Equal(t, sheet, routertest.ReceiveAnswer[Sheet](p))
					case "an item":
						assert.Equal(t, sheet, routertest.NextItem[Sheet](p))
						p.End()
					default:
						routertest.ReceiveAnswer[Counted](p)
					}
				}
				if what == "SendWait" {
					for range calls {
						assert.Equal(t, sheet, routertest.Receive[Sheet](client))
					}
				}
			})
		}
	}
}

// lateMeta returns a message whose meta follows a long payload and is so long that ingress sees only
// the type. The members must be those of a JSON object, without braces.
func lateMeta(typ, members string) string {
	return fmt.Sprintf(`{"type":%q,"payload":{"pad":%q},"meta":{%s,"pad":%q}}`, typ, strings.Repeat("x", 10_000), members, strings.Repeat("y", 600))
}

func TestLateMeta_RejectedCallIsAnsweredWithItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{})
		s.UseIngress(func(context.Context, router.IngressContext) error {
			return &router.LimitExceeded{Kind: router.LimitRate, RetryAfter: time.Second}
		})
		client := routertest.Dial(t, s)
		client.SendText(lateMeta("ECHO", `"correlationId":"a"`))
		frame := client.Next()
		assert.Equal(t, "RPC_ERROR", frame.Type)
		assert.Equal(t, "a", frame.Meta.CorrelationID)
	})
}

func TestLateMeta_TimeoutBoundsStreamsAndCallsWithoutID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlowRouter(router.Options{})
		router.Stream(s, func(ctx *router.Context, _ Block) iter.Seq2[int, error] {
			return func(func(int, error) bool) { <-ctx.Done() }
		})
		client := routertest.Dial(t, s)
		start := time.Now()
		client.SendText(lateMeta("BLOCK", `"correlationId":"a","timeoutMs":1000`))
		expired(t, client, "a")
		assert.Equal(t, time.Second, time.Since(start))

		client.SendText(lateMeta("BLOCK", `"timeoutMs":1000`))
		frame := client.Next()
		assert.Equal(t, "ERROR", frame.Type)
		assert.Contains(t, frame.Text, `"code":"DEADLINE_EXCEEDED"`)
		assert.Equal(t, 2*time.Second, time.Since(start))
	})
}

// TestCall_DeadlineDuringIngressLeavesNoCall holds a call in ingress until after its deadline. Its ID
// must be free afterwards, and its answer must be the only one.
func TestCall_DeadlineDuringIngressLeavesNoCall(t *testing.T) {
	for name, text := range map[string]string{
		"call":                 callText("a", ""),
		"meta behind payload":  lateMeta("ECHO", `"correlationId":"a"`),
		"duplicate of another": callText("open", ""),
	} {
		runSynctest(t, name, func(t *testing.T) {
			s := newSlowRouter(router.Options{})
			var delay atomic.Int64
			s.UseIngress(func(context.Context, router.IngressContext) error {
				time.Sleep(time.Duration(delay.Load()))
				return nil
			})
			router.RPC(s, func(ctx *router.Context, _ Block) (Blocked, error) { <-s.proceed; return Blocked{}, nil }).Timeout(time.Hour)
			client := routertest.Dial(t, s)
			client.SendText(`{"type":"BLOCK","meta":{"correlationId":"open"}}`)
			synctest.Wait()

			delay.Store(int64(callTimeout + time.Second))
			client.SendText(text)
			assert.Contains(t, client.Next().Text, `"code":"DEADLINE_EXCEEDED"`)
			time.Sleep(2 * time.Second)
			delay.Store(0)
			assert.Zero(t, client.Pending(), "one answer")
			assert.Zero(t, s.handled.Load())
			assert.Zero(t, s.inFlight.Load()-1, "only the open call")

			client.SendText(callText("a", ""))
			assert.Equal(t, "ECHOED", client.Next().Type, "the ID is free")
			close(s.proceed)
			assert.Equal(t, "BLOCKED", client.Next().Type)
		})
	}
}
