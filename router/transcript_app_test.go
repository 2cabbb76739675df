package router_test

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// A plainNote is both the event and the message of the server in the transcript.
type plainNote struct {
	Text string `json:"text"`
}

func (plainNote) MessageType() string { return "NOTE" }

func (n plainNote) Validate() error {
	if n.Text == "invalid" {
		return errors.InvalidField("text", "must not be invalid")
	}
	return nil
}

// A plainAsk is a call whose handler does what Do says.
type plainAsk struct {
	Do string `json:"do"`
	N  int    `json:"n,omitempty"`
}

func (plainAsk) MessageType() string { return "ASK" }

type plainAnswer struct {
	N int `json:"n"`
}

func (plainAnswer) MessageType() string { return "ANSWER" }

type plainEmpty struct{}

func (plainEmpty) MessageType() string { return "EMPTY" }

// The types below have other limits or actions than NOTE and ASK.
type (
	plainSerial  struct{}
	plainCostly  struct{}
	plainLarge   struct{}
	plainClosing struct{}
	plainCustom  struct{}
	plainTimed   struct{}
)

func (plainSerial) MessageType() string  { return "SERIAL" }
func (plainCostly) MessageType() string  { return "COSTLY" }
func (plainLarge) MessageType() string   { return "LARGE" }
func (plainClosing) MessageType() string { return "CLOSING" }
func (plainCustom) MessageType() string  { return "CUSTOM" }
func (plainTimed) MessageType() string   { return "TIMED" }

// A transcriptApp is a router with a route for everything that a plain client can meet.
type transcriptApp struct {
	*router.Router
	released, limited         atomic.Pointer[string]
	blocked                   chan struct{} // closed by release
	charged, handled, running atomic.Int64
}

func newTranscriptApp(opts router.Options) *transcriptApp {
	a := &transcriptApp{blocked: make(chan struct{})}
	opts.Authenticate, opts.Validate = byUser, validatePlain
	opts.OnOpen = func(_ context.Context, c *router.Conn) error {
		return errors.Join(c.Send(plainNote{"welcome"}), c.Subscribe("lobby"))
	}
	report := opts.OnLimitExceeded
	opts.OnLimitExceeded = func(l router.LimitExceeded) {
		if l.Type == "CUSTOM" {
			_ = l.Conn.Send(plainNote{"custom answer"})
		}
		if report != nil {
			report(l)
		}
	}
	a.Router = router.New(discardLogs(opts))
	a.UseIngress(a.ingress)
	router.On(a, a.note)
	router.RPC(a, a.ask).Use(replacePlainAnswer)
	router.RPC(a, func(*router.Context, plainEmpty) (plainEmpty, error) { return plainEmpty{}, nil })
	router.RPC(a, func(*router.Context, plainSerial) (plainAnswer, error) {
		time.Sleep(15 * time.Second)
		return plainAnswer{1}, nil
	}).Serial()
	router.RPC(a, func(*router.Context, plainCostly) (plainAnswer, error) { return plainAnswer{}, nil })
	router.On(a, func(*router.Context, plainLarge) error { return nil }).MaxMessageBytes(400)
	router.On(a, func(*router.Context, plainClosing) error { return nil }).LimitAction(router.ActionClose)
	router.On(a, func(*router.Context, plainCustom) error { return nil }).LimitAction(router.ActionCustom)
	router.Stream(a, a.count)
	router.RPC(a, a.timed).Timeout(8 * time.Second)
	return a
}

// release lets the handlers return that block, and those that would.
func (a *transcriptApp) release() {
	if a.released.CompareAndSwap(nil, new(string)) {
		close(a.blocked)
	}
}

func validatePlain(message any) error {
	switch m := message.(type) {
	case plainNote:
		if m.Text == "forbidden" {
			return errors.New("the application forbids it")
		}
	case plainAsk:
		if m.Do == "validate" || m.Do == "validate and refuse" {
			time.Sleep(time.Duration(m.N) * time.Second)
		}
		if m.Do == "validate and refuse" {
			return errors.New("refused")
		}
	}
	return nil
}

func (a *transcriptApp) ingress(_ context.Context, in router.IngressContext) error {
	a.charged.Add(1)
	if in.Type == "ASK" && strings.HasPrefix(in.Identity.UserID, "slow") {
		time.Sleep(15 * time.Second)
	}
	limited := a.limited.Load()
	switch {
	case in.Identity.UserID == "limited":
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 20, RetryAfter: 1250 * time.Millisecond, Reason: "cooldown"}
	case in.Identity.UserID == "slow and denied" || in.Identity.UserID == "denied":
		return errors.Errorf(errors.PermissionDenied, "access is denied")
	case in.Identity.UserID == "broken":
		panic("secret")
	case in.Identity.UserID == "failing":
		return errors.New("secret")
	case in.Type == "COSTLY":
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 50, Limit: 20, RetryAfter: errors.Never}
	case in.Type == "CLOSING" || in.Type == "CUSTOM" || limited != nil && in.Type == *limited:
		return &router.LimitExceeded{Kind: router.LimitRate, Observed: 1, Limit: 20, RetryAfter: time.Second}
	}
	return nil
}

func (a *transcriptApp) note(ctx *router.Context, m plainNote) error {
	a.handled.Add(1)
	switch m.Text {
	case "send":
		return errors.Join(ctx.Send(plainNote{"1"}), ctx.SendWait(plainNote{"2"}), ctx.Conn().Send(plainNote{`<é> "3"`}))
	case "publish":
		return ctx.Publish("lobby", plainNote{"to all"})
	case "publish to others":
		return ctx.Publish("lobby", plainNote{"to others"}, router.Except(ctx.Conn()))
	case "join":
		return ctx.Subscribe("room", router.Present("info"))
	case "leave":
		ctx.Unsubscribe("lobby")
		return nil
	case "fail":
		return plainError()
	case "plain error":
		return errors.New("secret")
	case "panic":
		panic("secret")
	case "block":
		<-a.blocked
	case "confirm":
		reply, err := router.Call[Confirmed](ctx, ctx.Conn(), Confirm{"event"})
		return errors.Join(err, ctx.Send(plainNote{fmt.Sprint(reply.Yes)}))
	}
	return nil
}

func (a *transcriptApp) ask(ctx *router.Context, m plainAsk) (plainAnswer, error) {
	a.handled.Add(1)
	switch m.Do {
	case "progress":
		updates := []any{map[string]int{"percent": 50}, "half", 1.5, nil, []int{}, plainNote{"a note"}}
		for _, update := range updates {
			if err := ctx.Progress(update); err != nil {
				return plainAnswer{}, err
			}
		}
	case "send":
		if err := ctx.Send(plainNote{"before the answer"}); err != nil {
			return plainAnswer{}, err
		}
	case "wait":
		time.Sleep(time.Duration(m.N) * time.Second)
	case "block":
		<-a.blocked
	case "confirm":
		_, err := router.Call[Confirmed](ctx, ctx.Conn(), Confirm{"call"})
		return plainAnswer{m.N}, err
	case "wait for the end":
		<-ctx.Done()
		_ = ctx.Progress("too late")
		return plainAnswer{}, ctx.Err()
	case "return late":
		<-ctx.Done()
		time.Sleep(time.Second)
	case "terminal":
		return plainAnswer{}, &errors.Error{Code: errors.NotFound, RetryAfter: time.Second}
	case "details":
		return plainAnswer{}, &errors.Error{Code: errors.Aborted, Details: badDetails()[m.N], RetryAfter: time.Second}
	case "fail":
		return plainAnswer{}, plainError()
	case "plain error":
		return plainAnswer{}, errors.New("secret")
	case "panic":
		panic("secret")
	case "code":
		codes := []errors.Code{errors.Unauthenticated, errors.PermissionDenied, errors.FailedPrecondition, errors.AlreadyExists, errors.Canceled, errors.Aborted, errors.Unavailable, "ROOM_FULL"}
		return plainAnswer{}, errors.Errorf(codes[m.N], "the code is %s", codes[m.N])
	}
	return plainAnswer{m.N}, nil
}

func replacePlainAnswer(next router.Handler) router.Handler {
	return func(ctx *router.Context) error {
		err := next(ctx)
		if ctx.Message().(plainAsk).Do == "replace" {
			ctx.SetReply(plainNote{"another reply"})
		}
		return err
	}
}

func plainError() error {
	return &errors.Error{
		Code: errors.Unavailable, Message: "the room is restarting", Details: map[string]any{"room": "go"},
		RetryAfter: 90 * time.Millisecond, Err: errors.New("secret"),
	}
}

// badDetails returns details that a client must not receive.
func badDetails() []any { return []any{map[string]any{"f": func() {}}, []int{1}, (*Echo)(nil)} }

// count is a stream of numbers, whose handler does more for some ends.
func (a *transcriptApp) count(ctx *router.Context, m Count) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for n := 0; m.To >= 0 && n < m.To; n++ {
			if !yield(n, nil) {
				return
			}
		}
		switch m.To {
		case -1:
			yield(0, errors.Errorf(errors.NotFound, "nothing"))
		case -2: // ProgressWait needs a credit, Progress needs none
			_ = errors.Join(ctx.ProgressWait(1), ctx.Progress(2))
			_ = yield(3, nil) && yield(4, nil)
		case -3:
			<-ctx.Done()
		case -4:
			<-a.blocked
			yield(0, nil)
		}
	}
}

// timed answers later than it may.
func (a *transcriptApp) timed(ctx *router.Context, m plainTimed) (plainTimed, error) {
	<-ctx.Done()
	time.Sleep(time.Millisecond) // a reply at the same time could be first
	return m, nil
}
