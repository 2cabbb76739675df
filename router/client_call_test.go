package router_test

import (
	"context"
	"fmt"
	"strings"
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

// Confirm is a call to a client.
type Confirm struct {
	Question string `json:"question"`
}

func (Confirm) MessageType() string { return "CONFIRM" }

// Confirmed is its reply.
type Confirmed struct {
	Yes bool `json:"yes"`
	By  string
}

func (Confirmed) MessageType() string { return "CONFIRMED" }

func (c Confirmed) Validate() error {
	switch c.By {
	case "":
		return nil
	case "panic":
		panic("By is panic")
	default:
		return errors.InvalidField("By", "must be empty")
	}
}

// dialConn opens a connection and returns both sides.
func dialConn(t *testing.T, r *router.Router) (*routertest.Conn, *router.Conn) {
	t.Helper()
	before := map[*router.Conn]bool{}
	for _, c := range collect(r) {
		before[c] = true
	}
	client := routertest.Dial(t, r)
	for {
		for _, c := range collect(r) {
			if !before[c] {
				return client, c
			}
		}
		time.Sleep(time.Millisecond)
	}
}

// An outcome is what Call has returned.
type outcome struct {
	reply Confirmed
	err   error
	after time.Duration
}

// confirm makes a call on a new goroutine.
func confirm(ctx context.Context, c *router.Conn) <-chan outcome {
	done, start := make(chan outcome, 1), time.Now()
	go func() {
		reply, err := router.Call[Confirmed](ctx, c, Confirm{"delete?"})
		done <- outcome{reply, err, time.Since(start)}
	}()
	return done
}

// answer returns the text of an answer to a call.
func answer(id, typ, payload string) string {
	return fmt.Sprintf(`{"type":%q,"meta":{"correlationId":%q},"payload":%s}`, typ, id, payload)
}

func TestClientCall_ReturnsReply(t *testing.T) {
	r := router.New(nil)
	client, c := dialConn(t, r)
	done := confirm(t.Context(), c)
	call := client.Next()
	assert.Regexp(t, `^{"type":"CONFIRM","meta":{"timestamp":\d+,"correlationId":"\$ws:1"},"payload":{"question":"delete\?"}}$`, call.Text)
	client.Answer(call, Confirmed{Yes: true})
	got := <-done
	require.NoError(t, got.err)
	assert.Equal(t, Confirmed{Yes: true}, got.reply)
}

// answered returns an error with which a client has answered, without its private part.
func answered(err error) error {
	e, ok := errors.AsType[*errors.Error](err)
	if !ok || e.Err == nil || !strings.Contains(e.Err.Error(), "has answered a call with this code") {
		return fmt.Errorf("no client has answered with %w", err)
	}
	public := *e
	public.Err = nil
	return &public
}

func TestClientCall_ReturnsErrorOfClient(t *testing.T) {
	long := strings.Repeat("é", 2000)
	for name, tt := range map[string]struct {
		typ, payload string
		want         *errors.Error
	}{
		"all fields": {
			"RPC_ERROR", `{"code":"NOT_FOUND","message":"no","details":{"a":[1]},"retryable":true,"retryAfterMs":1500}`,
			&errors.Error{Code: errors.NotFound, Message: "no", Details: map[string]any{"a": []any{1.0}}, RetryAfter: 1500 * time.Millisecond},
		},
		"ERROR":             {"ERROR", `{"code":"ABORTED"}`, &errors.Error{Code: errors.Aborted}},
		"own code":          {"RPC_ERROR", `{"code":"TEAPOT","retryAfterMs":null}`, &errors.Error{Code: "TEAPOT", RetryAfter: errors.Never}},
		"long message":      {"RPC_ERROR", `{"code":"ABORTED","message":"x` + long + `"}`, &errors.Error{Code: errors.Aborted, Message: "x" + long[:1022]}},
		"large details":     {"RPC_ERROR", `{"code":"ABORTED","details":{"a":"` + long + long + `"}}`, &errors.Error{Code: errors.Aborted}},
		"delay of ages":     {"RPC_ERROR", `{"code":"ABORTED","retryAfterMs":9223372036854775807}`, &errors.Error{Code: errors.Aborted}},
		"negative delay":    {"RPC_ERROR", `{"code":"ABORTED","retryAfterMs":-1}`, &errors.Error{Code: errors.Aborted}},
		"delay of no sense": {"RPC_ERROR", `{"code":"ABORTED","retryAfterMs":"1"}`, &errors.Error{Code: errors.Aborted}},
	} {
		t.Run(name, func(t *testing.T) {
			client, c := dialConn(t, router.New(nil))
			done := confirm(t.Context(), c)
			client.SendText(answer(client.Next().Meta.CorrelationID, tt.typ, tt.payload))
			got := <-done
			assert.Equal(t, tt.want, answered(got.err))
			assert.Zero(t, got.reply)
		})
	}
}

func TestClientCall_InvalidAnswerIsFailedPrecondition(t *testing.T) {
	const id = `"meta":{"correlationId":"$ws:1"}`
	for name, tt := range map[string]struct{ text, why string }{
		"other type":        {answer("$ws:1", "ECHO", `{}`), `its type is "ECHO"; it must be "CONFIRMED" or an error`},
		"reserved type":     {answer("$ws:1", "$ws:abort", `{}`), `its type is "$ws:abort"; it must be "CONFIRMED" or an error`},
		"heartbeat":         {answer("$ws:1", "__heartbeat", `{}`), `its type is "__heartbeat"; it must be "CONFIRMED" or an error`},
		"wrong field":       {answer("$ws:1", "CONFIRMED", `{"yes":7}`), "yes must be a boolean, not a number"},
		"wrong payload":     {answer("$ws:1", "CONFIRMED", `[]`), "payload must be an object, not an array"},
		"no payload":        {`{"type":"CONFIRMED",` + id + `}`, "payload is missing"},
		"Validate":          {answer("$ws:1", "CONFIRMED", `{"By":"ann"}`), "By must be empty"},
		"Options.Validate":  {answer("$ws:1", "CONFIRMED", `{"yes":true}`), "yes is too easy"},
		"broken JSON":       {`{"type":"CONFIRMED",` + id + `,"payload":{"yes":tru}}`, "message is not valid JSON: unexpected character"},
		"error, no payload": {`{"type":"RPC_ERROR",` + id + `}`, "payload is missing"},
		"error, no code":    {answer("$ws:1", "RPC_ERROR", `{"message":"no"}`), "code must have 1 to 64 letters, digits and underscores"},
		"error, long code":  {answer("$ws:1", "RPC_ERROR", `{"code":"`+strings.Repeat("A", 65)+`"}`), "code must have 1 to 64 letters"},
		"error, odd code":   {answer("$ws:1", "RPC_ERROR", `{"code":"A\nB"}`), "code must have 1 to 64 letters"},
		"error, wrong kind": {answer("$ws:1", "RPC_ERROR", `{"code":7}`), "code must be a string, not a number"},
		"error, details":    {answer("$ws:1", "RPC_ERROR", `{"code":"ABORTED","details":[]}`), "must be an object, not an array"},
	} {
		t.Run(name, func(t *testing.T) {
			r := router.New(&router.Options{Validate: func(m any) error {
				if m == (Confirmed{Yes: true}) {
					return errors.New("yes is too easy")
				}
				return nil
			}})
			client, c := dialConn(t, r)
			done := confirm(t.Context(), c)
			client.Next()
			client.SendText(tt.text)
			got := <-done
			assert.ErrorContains(t, got.err, "FAILED_PRECONDITION: the client's answer is not valid: router: answer of a client: ")
			assert.ErrorContains(t, got.err, tt.why)
			assert.Zero(t, got.reply)
		})
	}
}

// TestClientCall_HandlerMayReturnItsErrors returns the errors of calls to the client whose call is
// handled.
func TestClientCall_HandlerMayReturnItsErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string
		want   *errors.Error
		report string
	}{
		"error of the client": {answer("$ws:1", "RPC_ERROR", `{"code":"PERMISSION_DENIED","message":"no"}`), &errors.Error{Code: errors.PermissionDenied, Message: "no"}, ""},
		"invalid answer": {
			answer("$ws:1", "ECHO", `{}`), &errors.Error{Code: errors.FailedPrecondition, Message: "the client's answer is not valid"},
			`its type is "ECHO"; it must be "CONFIRMED" or an error`,
		},
		"panic in Validate": {answer("$ws:1", "CONFIRMED", `{"By":"panic"}`), &errors.Error{Code: errors.Internal}, "panic: By is panic"},
		"no answer":         {`{"type":"ECHO"}`, &errors.Error{Code: errors.DeadlineExceeded, Message: "the time for the call is up"}, ""},
	} {
		runSynctest(t, name, func(t *testing.T) {
			var reports recorder[error]
			var panics recorder[observe.Event]
			r := router.New(&router.Options{
				Timeouts: router.Timeouts{Call: callTimeout},
				OnError:  func(e router.ErrorReport) { reports.add(e.Err) },
			})
			r.Observe(func(e observe.Event) {
				if e.Kind == observe.Panicked {
					panics.add(e)
				}
			})
			router.RPC(r, func(ctx *router.Context, m Echo) (Echoed, error) {
				_, err := router.Call[Confirmed](ctx, ctx.Conn(), Confirm{})
				return Echoed{}, err
			})
			client := routertest.Dial(t, r)
			client.SendText(`{"type":"ECHO","meta":{"correlationId":"own"},"payload":{"n":1}}`)
			client.Next()
			client.SendText(tt.answer)
			if name == "no answer" {
				assert.Equal(t, errors.InvalidArgument, routertest.ReceiveError(client).Code, "the payload is missing")
			}
			got := routertest.ReceiveError(client)
			if name == "no answer" { // the deadline of the handled call passes in the same instant
				got.Message = tt.want.Message
			}
			assert.Equal(t, tt.want, got)
			synctest.Wait()
			if tt.report == "" {
				assert.Empty(t, reports.all())
				return
			}
			require.Len(t, reports.all(), 1)
			assert.ErrorContains(t, reports.all()[0], tt.report)
			if name == "panic in Validate" {
				require.Len(t, panics.all(), 1)
				assert.Equal(t, observe.Event{Kind: observe.Panicked, Type: "$ws:answer", Reason: "decode"}, panics.all()[0])
			}
		})
	}
}

func TestClientCall_LimitBoundsCallsWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		client, c := dialConn(t, r)
		var waiting []<-chan outcome
		for range 64 {
			waiting = append(waiting, confirm(t.Context(), c))
		}
		synctest.Wait()
		got := <-confirm(t.Context(), c)
		assert.Equal(t, &router.LimitExceeded{Kind: router.LimitConcurrency, Observed: 65, Limit: 64}, got.err)

		var calls []routertest.Frame
		for range 64 {
			calls = append(calls, client.Next())
		}
		client.Answer(calls[63], Confirmed{})
		synctest.Wait()
		waiting = append(waiting, confirm(t.Context(), c))
		synctest.Wait()
		calls = append(calls, client.Next())
		assert.Equal(t, "$ws:65", calls[64].Meta.CorrelationID, "the rejected call has used no ID")
		for i := range calls { // in reverse order
			client.Answer(calls[len(calls)-1-i], Confirmed{Yes: true})
		}
		failed := 0
		for _, done := range waiting {
			if got := <-done; got.reply.Yes {
				require.NoError(t, got.err)
			} else {
				failed++
			}
		}
		assert.Equal(t, 1, failed, "one call was answered before")
		assert.Zero(t, client.Pending())
	})
}

func TestClientCall_RejectsWhatCannotBeSent(t *testing.T) {
	_, c := dialConn(t, router.New(&router.Options{Limits: router.Limits{QueueBytes: 1000}}))
	_, err := router.Call[Confirmed](t.Context(), c, Confirm{strings.Repeat("x", 1000)})
	limit, ok := errors.AsType[*router.LimitExceeded](err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, router.LimitQueue, limit.Kind)
	_, err = router.Call[Confirmed](t.Context(), c, reserved{})
	assert.Equal(t, errors.Internal, errors.CodeOf(err))
	_, err = router.Call[Confirmed](t.Context(), c, nil)
	assert.Equal(t, errors.Internal, errors.CodeOf(err))
	_, err = router.Call[*Confirmed](t.Context(), c, Confirm{})
	assert.ErrorContains(t, err, "the reply *router_test.Confirmed is not a value type")
	_, err = router.Call[router.Message](t.Context(), c, Confirm{})
	assert.ErrorContains(t, err, "the reply router.Message is not a value type")
}

// reserved is a message with a name of the protocol.
type reserved struct{}

func (reserved) MessageType() string { return "$ws:hello" }
