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

// A failingError is an error with one method that fails.
type failingError struct {
	at    string
	fault func() // panics if nil
}

func (e *failingError) trigger(at string) {
	switch {
	case e.at != at:
	case e.fault != nil:
		e.fault()
	default:
		panic(at)
	}
}

func (e *failingError) Error() string { e.trigger("Error"); return "failing" }
func (e *failingError) Is(error) bool { e.trigger("Is"); return false }
func (e *failingError) As(any) bool   { e.trigger("As"); return false }
func (e *failingError) Unwrap() error { e.trigger("Unwrap"); return nil }

// manyErrors wraps the errors that a function returns.
type manyErrors func() []error

func (manyErrors) Error() string     { return "many" }
func (e manyErrors) Unwrap() []error { return e() }

// selfWrapping is an error that wraps itself.
type selfWrapping struct{}

func (selfWrapping) Error() string   { return "selfWrapping" }
func (e selfWrapping) Unwrap() error { return e }

// nilFromAs has an As method that sets a nil *errors.Error.
type nilFromAs struct{}

func (nilFromAs) Error() string { return "nil" }

func (nilFromAs) As(target any) bool {
	to, ok := target.(**errors.Error)
	if ok {
		*to = nil
	}
	return ok
}

// valueError has an Error method with a value receiver, which panics for a nil pointer.
type valueError struct{}

func (valueError) Error() string { return "by value" }

// An errorCase is an error that is nil inside, or whose methods fail.
type errorCase struct {
	err    func() error
	want   errors.Code // empty means INTERNAL
	panics bool        // the report must mention a panic
	exits  bool        // a method calls runtime.Goexit
}

func errorCases() map[string]errorCase {
	wrap := func(err error) func() error {
		return func() error { return fmt.Errorf("x: %w", err) }
	}
	failing := func(at string) func() error {
		return func() error { return fmt.Errorf("x: %w", &failingError{at: at}) }
	}
	return map[string]errorCase{
		"nil Error":             {err: func() error { return noError() }},
		"nil value":             {err: func() error { return (*valueError)(nil) }},
		"wrapped nil Error":     {err: wrap(noError())},
		"wrapped nil limit":     {err: wrap(noLimit())},
		"wrapped nil close":     {err: wrap((*router.CloseError)(nil))},
		"wrapped nil panic":     {err: wrap((*errors.PanicError)(nil))},
		"joined nil Error":      {err: func() error { return errors.Join(http.ErrNoCookie, noError()) }},
		"joined nil limit":      {err: func() error { return errors.Join(http.ErrNoCookie, noLimit()) }},
		"cause is nil Error":    {err: func() error { return &errors.Error{Code: errors.Internal, Err: noError()} }},
		"As gives nil":          {err: wrap(nilFromAs{})},
		"Is panics":             {err: failing("Is"), panics: true},
		"As panics":             {err: failing("As"), panics: true},
		"Unwrap panics":         {err: failing("Unwrap"), panics: true},
		"Error panics":          {err: func() error { return &failingError{at: "Error"} }, panics: true},
		"Error of cause panics": {err: func() error { return &errors.Error{Code: errors.NotFound, Err: &failingError{at: "Error"}} }, panics: true},
		"Unwrap many panics":    {err: func() error { return manyErrors(func() []error { panic("many") }) }, panics: true},
		"wraps itself":          {err: func() error { return selfWrapping{} }, panics: true},
		"wraps itself twice": {err: func() error {
			var e manyErrors
			e = func() []error { return []error{e, e} }
			return e
		}, panics: true},
		"Details panic": {err: func() error {
			return &errors.Error{Code: errors.Aborted, Details: map[string]any{"a": PanickingJSON{}}}
		}, want: errors.Aborted, panics: true},
		"panic of failing error": {err: func() error { panic(&failingError{at: "Error"}) }, panics: true},
		"Unwrap exits":           {err: func() error { return &failingError{"Unwrap", runtime.Goexit} }, exits: true},
		"Error exits":            {err: func() error { return &failingError{"Error", runtime.Goexit} }, exits: true},
	}
}

// Checked has a Validate method that returns the error of the errorCase named At.
type Checked struct{ At string }

func (Checked) MessageType() string { return "CHECKED" }
func (m Checked) Validate() error   { return errorCases()[m.At].err() }

// errorSources returns functions that register application code which returns the error of a case.
func errorSources() map[string]func(h *harness, s errorCase) {
	return map[string]func(*harness, errorCase){
		"handler of On": func(h *harness, s errorCase) {
			router.On(h.router, func(*router.Context, Faulty) error { return s.err() })
		},
		"handler of RPC": func(h *harness, s errorCase) {
			router.RPC(h.router, func(*router.Context, Faulty) (Echoed, error) { return Echoed{}, s.err() })
		},
		"middleware": func(h *harness, s errorCase) {
			respondWith(nil)(h)
			h.router.Use(func(next router.Handler) router.Handler {
				return func(ctx *router.Context) error {
					if ctx.Type() == "FAULTY" {
						return s.err()
					}
					return next(ctx)
				}
			})
		},
		"ingress": func(h *harness, s errorCase) {
			respondWith(nil)(h)
			h.router.UseIngress(func(_ context.Context, in router.IngressContext) error {
				if in.Type == "FAULTY" {
					return s.err()
				}
				return nil
			})
		},
	}
}

func TestFault_FailingErrorEndsOnlyItsMessage(t *testing.T) {
	for source, setUp := range errorSources() {
		for name, s := range errorCases() {
			runSynctest(t, source+"/"+name, func(t *testing.T) {
				h := &harness{T: t}
				h.start(func(h *harness) { setUp(h, s) })
				h.conn = h.dial()
				want := errors.Internal
				if s.want != "" {
					want = s.want
				}
				assert.Equal(t, want, h.call(h.conn).Code)
				h.checkOneReport(s)
				h.checkIsolation(true)
			})
		}
	}
}

// checkOneReport checks that OnError received exactly one error and that describing it did not fail.
func (h *harness) checkOneReport(s errorCase) {
	synctest.Wait()
	failures := h.failures.all()
	if assert.Len(h, failures, 1) && s.panics {
		assert.Contains(h, failures[0], "panic: ")
	}
	assert.NotContains(h, h.panics.all(), "OnError")
}

func TestFault_FailingErrorIsLogged(t *testing.T) {
	for name, s := range errorCases() {
		runSynctest(t, name, func(t *testing.T) {
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

func TestFault_FailingErrorOfValidateRejectsMessage(t *testing.T) {
	for name, s := range errorCases() {
		check := func(t *testing.T, h *harness, text string) {
			h.conn = h.dial()
			h.conn.SendText(text)
			synctest.Wait()
			assert.Equal(t, 1, h.conn.Pending())
			frame := h.conn.Next().Text
			switch {
			case s.want != "":
				assert.Contains(t, frame, s.want)
			case !strings.Contains(frame, `"INVALID_ARGUMENT"`):
				assert.Contains(t, frame, `"INTERNAL"`)
				h.checkOneReport(s)
			default: // the router did not call the failing method
				assert.Contains(t, name, "Is panics")
			}
			h.checkIsolation(true)
		}
		runSynctest(t, "method/"+name, func(t *testing.T) {
			h := &harness{T: t}
			h.start(func(h *harness) {
				router.RPC(h.router, func(*router.Context, Checked) (Echoed, error) { return Echoed{}, nil })
			})
			check(t, h, fmt.Sprintf(`{"type":"CHECKED","meta":{"correlationId":"c"},"payload":{"At":%q}}`, name))
		})
		runSynctest(t, "option/"+name, func(t *testing.T) {
			h := &harness{T: t}
			h.opts.Validate = func(m any) error {
				if _, ok := m.(Faulty); ok {
					return s.err()
				}
				return nil
			}
			h.start(respondWith(nil))
			check(t, h, `{"type":"FAULTY","meta":{"correlationId":"c"},"payload":{}}`)
		})
	}
}

// Undecodable has an UnmarshalJSON method that returns the error of the errorCase that the payload
// names.
type Undecodable struct{}

func (Undecodable) MessageType() string { return "UNDECODABLE" }

func (*Undecodable) UnmarshalJSON(text []byte) error {
	return errorCases()[strings.Trim(string(text), `"`)].err()
}

func TestFault_FailingErrorOfDecodingRejectsMessage(t *testing.T) {
	for name := range errorCases() {
		if strings.HasPrefix(name, "wraps itself") {
			continue // the JSON library unwraps it forever
		}
		runSynctest(t, name, func(t *testing.T) {
			h := &harness{T: t}
			h.start(func(h *harness) {
				router.RPC(h.router, func(*router.Context, Undecodable) (Echoed, error) { return Echoed{}, nil })
			})
			h.conn = h.dial()
			h.conn.SendText(fmt.Sprintf(`{"type":"UNDECODABLE","meta":{"correlationId":"c"},"payload":%q}`, name))
			synctest.Wait()
			assert.Equal(t, 1, h.conn.Pending())
			if code := routertest.ReceiveError(h.conn).Code; code != errors.InvalidArgument {
				assert.Equal(t, errors.Internal, code)
				assert.Len(t, h.failures.all(), 1)
			}
			assert.NotContains(t, h.panics.all(), "OnError")
			h.checkIsolation(true)
		})
	}
}

func TestFault_LateFailingErrorIsReported(t *testing.T) {
	for name, s := range errorCases() {
		runSynctest(t, name, func(t *testing.T) {
			h := &harness{T: t}
			h.opts.Timeouts.Call = time.Second
			h.start(func(h *harness) {
				router.RPC(h.router, func(ctx *router.Context, _ Faulty) (Echoed, error) {
					<-ctx.Done()
					time.Sleep(time.Second)
					return Echoed{}, s.err()
				})
			})
			h.conn = h.dial()
			assert.Equal(t, errors.DeadlineExceeded, routertest.CallError(h.conn, Faulty{}).Code)
			time.Sleep(2 * time.Second)
			assert.Zero(t, h.conn.Pending())
			h.checkOneReport(s)
			h.checkIsolation(true)
		})
	}
}

func TestFault_FailingErrorRejectsConnection(t *testing.T) {
	for name, s := range errorCases() {
		runSynctest(t, "OnOpen/"+name, func(t *testing.T) {
			h := &harness{T: t}
			h.opts.OnOpen = func(_ context.Context, c *router.Conn) error {
				if c.Identity().UserID == faultyUser {
					return s.err()
				}
				return nil
			}
			h.start(nil)
			assert.Equal(t, router.StatusInternalError, h.dial().Closed().Code)
			h.checkOneReport(s)
			h.checkIsolation(false)
		})
		runSynctest(t, "Authenticate/"+name, func(t *testing.T) {
			h := &harness{T: t}
			h.opts.Authenticate = func(req *http.Request) (router.Identity, error) {
				if router.Token(req) == "" {
					return router.Identity{UserID: faultyUser}, s.err()
				}
				return router.Identity{UserID: router.Token(req)}, nil
			}
			h.start(nil)
			w, ended := httptest.NewRecorder(), make(chan struct{})
			go func() {
				defer close(ended)
				h.router.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			}()
			<-ended
			assert.Equal(t, http.StatusInternalServerError, w.Code)
			h.checkOneReport(s)
			h.conn = h.dial()
			h.checkIsolation(true)
		})
	}
}
