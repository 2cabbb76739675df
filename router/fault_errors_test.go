package router_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"runtime"
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

// Undecodable has an UnmarshalJSON method that returns the error of the errorCase that the payload names.
type Undecodable struct{}

func (Undecodable) MessageType() string { return "UNDECODABLE" }

func (*Undecodable) UnmarshalJSON(text []byte) error {
	return errorCases()[strings.Trim(string(text), `"`)].err()
}

// An errorSource is application code that returns the error of a case.
type errorSource struct {
	setUp   func(h *harness, s errorCase)
	message string // with the name of the case; a Faulty if it is empty
	decodes bool   // an error that needs no method that fails is INVALID_ARGUMENT
	late    bool   // the call has been answered
}

func errorSources() map[string]errorSource {
	return map[string]errorSource{
		"handler of On": {setUp: func(h *harness, s errorCase) {
			router.On(h.router, func(*router.Context, Faulty) error { return s.err() })
		}},
		"handler of RPC": {setUp: func(h *harness, s errorCase) {
			router.RPC(h.router, func(*router.Context, Faulty) (Echoed, error) { return Echoed{}, s.err() })
		}},
		"late handler": {late: true, setUp: func(h *harness, s errorCase) {
			router.RPC(h.router, func(*router.Context, Faulty) (Echoed, error) {
				time.Sleep(2 * time.Second)
				return Echoed{}, s.err()
			}).Timeout(time.Second)
		}},
		"middleware": {setUp: func(h *harness, s errorCase) {
			router.RPC(h.router, func(*router.Context, Faulty) (Echoed, error) { return Echoed{}, nil }).
				Use(func(router.Handler) router.Handler { return func(*router.Context) error { return s.err() } })
		}},
		"ingress": {setUp: func(h *harness, s errorCase) {
			router.RPC(h.router, func(*router.Context, Faulty) (Echoed, error) { return Echoed{}, nil }).
				UseIngress(func(context.Context, router.IngressContext) error { return s.err() })
		}},
		"Validate": {
			decodes: true, message: `{"type":"CHECKED","meta":{"correlationId":"c"},"payload":{"At":%q}}`,
			setUp: func(h *harness, _ errorCase) {
				router.RPC(h.router, func(*router.Context, Checked) (Echoed, error) { return Echoed{}, nil })
			},
		},
		"Options.Validate": {decodes: true, setUp: respondWithNil},
		"UnmarshalJSON": {
			decodes: true, message: `{"type":"UNDECODABLE","meta":{"correlationId":"c"},"payload":%q}`,
			setUp: func(h *harness, _ errorCase) {
				router.RPC(h.router, func(*router.Context, Undecodable) (Echoed, error) { return Echoed{}, nil })
			},
		},
	}
}

func respondWithNil(h *harness, _ errorCase) { respondWith(nil)(h) }

func TestFault_FailingErrorEndsOnlyItsMessage(t *testing.T) {
	for from, source := range errorSources() {
		for name, s := range errorCases() {
			if from == "UnmarshalJSON" && strings.HasPrefix(name, "wraps itself") {
				continue // the JSON library unwraps it forever
			}
			runSynctest(t, from+"/"+name, func(t *testing.T) {
				h := &harness{T: t}
				if from == "Options.Validate" {
					h.opts.Validate = func(m any) error {
						if _, ok := m.(Faulty); ok {
							return s.err()
						}
						return nil
					}
				}
				h.start(func(h *harness) { source.setUp(h, s) })
				h.conn = h.dial()
				message := `{"type":"FAULTY","meta":{"correlationId":"c"},"payload":{"At":""}}`
				if source.message != "" {
					message = fmt.Sprintf(source.message, name)
				}
				h.conn.SendText(message)
				time.Sleep(3 * time.Second)
				require.Equal(t, 1, h.conn.Pending(), "exactly one answer")
				h.checkAnswer(source, s, routertest.ReceiveError(h.conn).Code)
				h.checkIsolation(true)
			})
		}
	}
}

// checkAnswer checks the code of an answer, and that OnError received the error.
func (h *harness) checkAnswer(source errorSource, s errorCase, code errors.Code) {
	h.Helper()
	want := cmp.Or(s.want, errors.Internal)
	if source.late {
		want = errors.DeadlineExceeded
	}
	if source.decodes && code == errors.InvalidArgument { // the router did not call the failing method
		assert.NotContains(h, h.panics.all(), "OnError")
		return
	}
	assert.Equal(h, want, code)
	h.checkOneReport(s)
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
				if req.Header.Get("X-Fault") != "" {
					return router.Identity{UserID: faultyUser}, s.err()
				}
				return byUser(req)
			}
			h.start(nil)
			h.requestFails()
			h.checkOneReport(s)
			h.conn = h.dial()
			h.checkIsolation(true)
		})
	}
}
