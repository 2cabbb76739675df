package router_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A rottenError is an error one of whose methods fails.
type rottenError struct {
	at    string
	fault func() // a panic if nil
}

func (e *rottenError) trigger(at string) {
	switch {
	case e.at != at:
	case e.fault != nil:
		e.fault()
	default:
		panic(at)
	}
}

func (e *rottenError) Error() string { e.trigger("Error"); return "rotten" }
func (e *rottenError) Is(error) bool { e.trigger("Is"); return false }
func (e *rottenError) As(any) bool   { e.trigger("As"); return false }
func (e *rottenError) Unwrap() error { e.trigger("Unwrap"); return nil }

// manyErrors wraps what a function returns.
type manyErrors func() []error

func (manyErrors) Error() string     { return "many" }
func (e manyErrors) Unwrap() []error { return e() }

// endless wraps itself.
type endless struct{}

func (endless) Error() string   { return "endless" }
func (e endless) Unwrap() error { return e }

// nilAs claims to be a nil *errors.Error.
type nilAs struct{}

func (nilAs) Error() string { return "nil" }

func (nilAs) As(target any) bool {
	to, ok := target.(**errors.Error)
	if ok {
		*to = nil
	}
	return ok
}

// byValue is an error of a nil pointer, too.
type byValue struct{}

func (byValue) Error() string { return "by value" }

// A shape is an error that must be handled with care.
type shape struct {
	err    func() error
	want   errors.Code // if not INTERNAL
	panics bool        // which the report says
	exits  bool
}

func shapes() map[string]shape {
	wrap := func(err error) func() error {
		return func() error { return fmt.Errorf("x: %w", err) }
	}
	rotten := func(at string) func() error {
		return func() error { return fmt.Errorf("x: %w", &rottenError{at: at}) }
	}
	return map[string]shape{
		"nil Error":             {err: func() error { return noError() }},
		"nil value":             {err: func() error { return (*byValue)(nil) }},
		"wrapped nil Error":     {err: wrap(noError())},
		"wrapped nil limit":     {err: wrap(noLimit())},
		"wrapped nil close":     {err: wrap((*router.CloseError)(nil))},
		"wrapped nil panic":     {err: wrap((*router.PanicError)(nil))},
		"joined nil Error":      {err: func() error { return errors.Join(http.ErrNoCookie, noError()) }},
		"joined nil limit":      {err: func() error { return errors.Join(http.ErrNoCookie, noLimit()) }},
		"cause is nil Error":    {err: func() error { return &errors.Error{Code: errors.Internal, Err: noError()} }},
		"As gives nil":          {err: wrap(nilAs{})},
		"Is panics":             {err: rotten("Is"), panics: true},
		"As panics":             {err: rotten("As"), panics: true},
		"Unwrap panics":         {err: rotten("Unwrap"), panics: true},
		"Error panics":          {err: func() error { return &rottenError{at: "Error"} }, panics: true},
		"Error of cause panics": {err: func() error { return &errors.Error{Code: errors.NotFound, Err: &rottenError{at: "Error"}} }, panics: true},
		"Unwrap many panics":    {err: func() error { return manyErrors(func() []error { panic("many") }) }, panics: true},
		"wraps itself":          {err: func() error { return endless{} }, panics: true},
		"wraps itself twice": {err: func() error {
			var e manyErrors
			e = func() []error { return []error{e, e} }
			return e
		}, panics: true},
		"Details panic": {err: func() error {
			return &errors.Error{Code: errors.Aborted, Details: map[string]any{"a": Explosive{}}}
		}, want: errors.Aborted, panics: true},
		"panic of rotten error": {err: func() error { panic(&rottenError{at: "Error"}) }, panics: true},
		"Unwrap exits":          {err: func() error { return &rottenError{"Unwrap", runtime.Goexit} }, exits: true},
		"Error exits":           {err: func() error { return &rottenError{"Error", runtime.Goexit} }, exits: true},
	}
}

// Checked has a Validate method that returns an error of a shape.
type Checked struct{ At string }

func (Checked) MessageType() string { return "CHECKED" }
func (m Checked) Validate() error   { return shapes()[m.At].err() }

// places are where application code returns an error for a message.
func places() map[string]func(g *rig, s shape) {
	return map[string]func(*rig, shape){
		"handler of On": func(g *rig, s shape) {
			router.On(g.router, func(*router.Context, Faulty) error { return s.err() })
		},
		"handler of RPC": func(g *rig, s shape) {
			router.RPC(g.router, func(*router.Context, Faulty) (Echoed, error) { return Echoed{}, s.err() })
		},
		"middleware": func(g *rig, s shape) {
			answer(nil)(g)
			g.router.Use(func(next router.Handler) router.Handler {
				return func(ctx *router.Context) error {
					if ctx.Type() == "FAULTY" {
						return s.err()
					}
					return next(ctx)
				}
			})
		},
		"ingress": func(g *rig, s shape) {
			answer(nil)(g)
			g.router.UseIngress(func(_ context.Context, in router.IngressContext) error {
				if in.Type == "FAULTY" {
					return s.err()
				}
				return nil
			})
		},
	}
}

func TestGuard_ErrorsOfAnyShapeEndTheirMessage(t *testing.T) {
	for place, setUp := range places() {
		for name, s := range shapes() {
			bubble(t, place+"/"+name, func(t *testing.T) {
				g := &rig{T: t}
				g.start(func(g *rig) { setUp(g, s) })
				g.conn = g.dial()
				want := errors.Internal
				if s.want != "" {
					want = s.want
				}
				assert.Equal(t, want, g.call(g.conn).Code)
				g.checkReport(s)
				g.check(true)
			})
		}
	}
}

// checkReport proves that OnError got one error that can be described.
func (g *rig) checkReport(s shape) {
	synctest.Wait()
	failures := g.failures.all()
	if assert.Len(g, failures, 1) && s.panics {
		assert.Contains(g, failures[0], "panic: ")
	}
	assert.NotContains(g, g.panics.all(), "OnError")
}

func TestGuard_ErrorsOfAnyShapeAreLogged(t *testing.T) {
	for name, s := range shapes() {
		bubble(t, name, func(t *testing.T) {
			var log lockedBuffer
			r := router.New(&router.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			router.RPC(r, func(*router.Context, Faulty) (Echoed, error) { return Echoed{}, s.err() })
			router.RPC(r, echo)
			conn := routertest.Dial(t, r)
			assert.NotEmpty(t, routertest.CallError(conn, Faulty{}).Code)
			assert.Equal(t, Echoed{1}, routertest.Call[Echoed](conn, Echo{1}))
			text := log.String()
			assert.Equal(t, 1, strings.Count(text, "message failed"), text)
			assert.NotContains(t, text, "!PANIC")
			if s.panics {
				assert.Contains(t, text, "stack=")
				assert.Contains(t, text, "panic: ")
			}
		})
	}
}

func TestGuard_ErrorsOfAnyShapeFailValidation(t *testing.T) {
	for name, s := range shapes() {
		check := func(t *testing.T, g *rig, text string) {
			g.conn = g.dial()
			g.conn.SendText(text)
			synctest.Wait()
			assert.Equal(t, 1, g.conn.Pending())
			frame := g.conn.Next().Text
			switch {
			case s.want != "":
				assert.Contains(t, frame, s.want)
			case !strings.Contains(frame, `"INVALID_ARGUMENT"`):
				assert.Contains(t, frame, `"INTERNAL"`)
				g.checkReport(s)
			default: // the faulty method was of no use
				assert.Contains(t, name, "Is panics")
			}
			g.check(true)
		}
		bubble(t, "method/"+name, func(t *testing.T) {
			g := &rig{T: t}
			g.start(func(g *rig) {
				router.RPC(g.router, func(*router.Context, Checked) (Echoed, error) { return Echoed{}, nil })
			})
			check(t, g, fmt.Sprintf(`{"type":"CHECKED","meta":{"correlationId":"c"},"payload":{"At":%q}}`, name))
		})
		bubble(t, "option/"+name, func(t *testing.T) {
			g := &rig{T: t}
			g.opts.Validate = func(m any) error {
				if _, ok := m.(Faulty); ok {
					return s.err()
				}
				return nil
			}
			g.start(answer(nil))
			check(t, g, `{"type":"FAULTY","meta":{"correlationId":"c"},"payload":{}}`)
		})
	}
}

// Undecodable cannot be decoded, for a reason of a shape.
type Undecodable struct{}

func (Undecodable) MessageType() string { return "UNDECODABLE" }

func (*Undecodable) UnmarshalJSON(text []byte) error {
	return shapes()[strings.Trim(string(text), `"`)].err()
}

func TestGuard_ErrorsOfAnyShapeFailDecoding(t *testing.T) {
	for name := range shapes() {
		if strings.HasPrefix(name, "wraps itself") {
			continue // the JSON library follows it without end
		}
		bubble(t, name, func(t *testing.T) {
			g := &rig{T: t}
			g.start(func(g *rig) {
				router.RPC(g.router, func(*router.Context, Undecodable) (Echoed, error) { return Echoed{}, nil })
			})
			g.conn = g.dial()
			g.conn.SendText(fmt.Sprintf(`{"type":"UNDECODABLE","meta":{"correlationId":"c"},"payload":%q}`, name))
			synctest.Wait()
			assert.Equal(t, 1, g.conn.Pending())
			if code := routertest.ReceiveError(g.conn).Code; code != errors.InvalidArgument {
				assert.Equal(t, errors.Internal, code)
				assert.Len(t, g.failures.all(), 1)
			}
			assert.NotContains(t, g.panics.all(), "OnError")
			g.check(true)
		})
	}
}

func TestGuard_LateErrorsOfAnyShapeAreReported(t *testing.T) {
	for name, s := range shapes() {
		bubble(t, name, func(t *testing.T) {
			g := &rig{T: t}
			g.opts.Timeouts.Call = time.Second
			g.start(func(g *rig) {
				router.RPC(g.router, func(ctx *router.Context, _ Faulty) (Echoed, error) {
					<-ctx.Done()
					time.Sleep(time.Second)
					return Echoed{}, s.err()
				})
			})
			g.conn = g.dial()
			assert.Equal(t, errors.DeadlineExceeded, routertest.CallError(g.conn, Faulty{}).Code)
			time.Sleep(2 * time.Second)
			assert.Zero(t, g.conn.Pending())
			g.checkReport(s)
			g.check(true)
		})
	}
}

func TestGuard_ErrorsOfAnyShapeRefuseConnection(t *testing.T) {
	for name, s := range shapes() {
		bubble(t, "OnOpen/"+name, func(t *testing.T) {
			g := &rig{T: t}
			g.opts.OnOpen = func(_ context.Context, c *router.Conn) error {
				if c.Identity().UserID == faultyUser {
					return s.err()
				}
				return nil
			}
			g.start(nil)
			assert.Equal(t, router.StatusInternalError, g.dial().Closed().Code)
			g.checkReport(s)
			g.check(false)
		})
		bubble(t, "Authenticate/"+name, func(t *testing.T) {
			g := &rig{T: t}
			g.opts.Authenticate = func(req *http.Request) (router.Identity, error) {
				if router.Token(req) == "" {
					return router.Identity{UserID: faultyUser}, s.err()
				}
				return router.Identity{UserID: router.Token(req)}, nil
			}
			g.start(nil)
			w, ended := httptest.NewRecorder(), make(chan struct{})
			go func() {
				defer close(ended)
				g.router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			}()
			<-ended
			assert.Equal(t, http.StatusInternalServerError, w.Code)
			g.checkReport(s)
			g.conn = g.dial()
			g.check(true)
		})
	}
}
