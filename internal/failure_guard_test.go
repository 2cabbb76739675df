package internal_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// newInspector has a limit that is known by its type, and details that cannot be encoded.
func newInspector() *failure.Inspector[*limitError] {
	return &failure.Inspector[*limitError]{
		Limit: func(l *limitError) *failure.Failure {
			f := failure.Of(errors.Errorf(errors.ResourceExhausted, "limit"))
			f.Limit = l
			return f
		},
		Details: func(any) (jsonv2.Value, error) { return nil, errors.New("no details") },
	}
}

// unreadable panics when it is described.
type unreadable struct{}

func (unreadable) Error() string { panic("Error") }

func TestGuard_SplitsErrorsAndPanics(t *testing.T) {
	limit := &limitError{errors.New("limit")}
	cause := errors.New("secret")
	for name, tt := range map[string]struct {
		f        func() error
		code     errors.Code // "" if there is no failure
		text     string      // of the cause, "" if the client sees everything
		limit    error
		stack    bool
		panicked bool
	}{
		"no error":            {f: func() error { return nil }},
		"without a code":      {f: func() error { return cause }, code: errors.Internal, text: "secret"},
		"with a code":         {f: func() error { return errors.Errorf(errors.NotFound, "no such room") }, code: errors.NotFound},
		"with a cause":        {f: func() error { return &errors.Error{Code: errors.NotFound, Err: cause} }, code: errors.NotFound, text: "NOT_FOUND: secret"},
		"with bad details":    {f: func() error { return errors.InvalidField("a", "is missing") }, code: errors.InvalidArgument, text: "no details"},
		"limit":               {f: func() error { return fmt.Errorf("first: %w", limit) }, code: errors.ResourceExhausted, limit: limit},
		"nil limit":           {f: func() error { return (*limitError)(nil) }, code: errors.Internal, text: "router: the error of test is a nil *internal_test.limitError; return nil itself"},
		"nil error with code": {f: func() error { return errors.Join(cause, (*errors.Error)(nil)) }, code: errors.Internal, text: "router: the error of test holds a nil *errors.Error: secret\n<nil>"},
		"canceled":            {f: func() error { return fmt.Errorf("load: %w", context.Canceled) }, code: errors.Canceled},
		"closed":              {f: func() error { return failure.Closed(cause) }, code: errors.Canceled},
		"deadline":            {f: func() error { return context.DeadlineExceeded }, code: errors.DeadlineExceeded},
		"deadline of a call":  {f: func() error { return fmt.Errorf("load: %w", context.DeadlineExceeded) }, code: errors.DeadlineExceeded, text: "load: context deadline exceeded"},
		"panic":               {f: func() error { panic("fault") }, code: errors.Internal, text: "panic: fault", stack: true, panicked: true},
		"panic that returns":  {f: func() error { return failure.NewPanic("fault", []byte("stack")) }, code: errors.Internal, text: "panic: fault", stack: true},
		"panic of a method":   {f: func() error { return unreadable{} }, code: errors.Internal, text: "router: the error of test, a internal_test.unreadable, cannot be inspected: panic: Error", stack: true, panicked: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, panicked := newInspector().Guard("test", tt.f)
			assert.Equal(t, tt.panicked, panicked)
			if tt.code == "" {
				assert.Nil(t, got)
				return
			}
			require.NotNil(t, got)
			assert.Equal(t, tt.code, got.Payload.Code)
			assert.Equal(t, tt.text, got.Text)
			assert.Equal(t, tt.text != "", got.Cause != nil)
			assert.Equal(t, tt.limit, got.Limit)
			assert.Equal(t, tt.stack, got.Stack != nil)
			assert.Equal(t, "test", got.Stage)
		})
	}
}

// TestGuard_PassesGoexit checks that the deferred function does not take it for a panic.
func TestGuard_PassesGoexit(t *testing.T) {
	returned, ended := false, make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = newInspector().Guard("test", func() error { runtime.Goexit(); return nil })
		returned = true
	}()
	<-ended
	assert.False(t, returned)
}
