package calls_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/calls"
)

var (
	errAborted = errors.New("aborted")
	errExpired = errors.New("expired")

	returned = calls.NewEnd(nil)
	aborted  = calls.NewEnd(errAborted)
	expired  = calls.NewExpiry(errExpired)
)

type key struct{}

// TestCall_BeginSetsParent ends calls while their context is used for the first time.
func TestCall_BeginSetsParent(t *testing.T) {
	parent := context.WithValue(t.Context(), key{}, "of the parent")
	for i := range 5000 {
		k := calls.Call[message]{ReceivedAt: time.Now()}
		k.Begin(parent)
		assert.Equal(t, parent, k.Parent())
		var wg sync.WaitGroup
		var ready atomic.Int32
		meet := func() {
			for ready.Add(1); ready.Load() < 2; {
				runtime.Gosched()
			}
		}
		wg.Go(func() {
			meet()
			for range i { // so that the end meets each step of the first use
			}
			k.End(aborted)
		})
		meet()
		ctx := k.Context(t.Context(), expired)
		wg.Wait()
		assert.ErrorIs(t, ctx.Err(), context.Canceled)
		assert.Equal(t, errAborted, context.Cause(ctx))
		assert.Equal(t, "of the parent", ctx.Value(key{}))
		assert.Equal(t, parent, k.Parent())
		assert.Equal(t, errAborted, k.Cause())
	}
}

// TestCall_ContextEndsAsItsCall uses the context of a call before or after its end.
func TestCall_ContextEndsAsItsCall(t *testing.T) {
	for name, tt := range map[string]struct {
		ends      []*calls.End
		err       error
		cause     error // of the context
		callCause error
	}{
		"open":                     {},
		"returned":                 {ends: []*calls.End{returned}, err: context.Canceled, cause: context.Canceled},
		"aborted, then returned":   {ends: []*calls.End{aborted, returned}, err: context.Canceled, cause: errAborted, callCause: errAborted},
		"returned, then aborted":   {ends: []*calls.End{returned, aborted}, err: context.Canceled, cause: context.Canceled},
		"expired":                  {ends: []*calls.End{expired}, err: context.DeadlineExceeded, cause: errExpired, callCause: errExpired},
		"expired, then returned":   {ends: []*calls.End{expired, returned}, err: context.DeadlineExceeded, cause: errExpired, callCause: errExpired},
		"aborted, then expired":    {ends: []*calls.End{aborted, expired}, err: context.Canceled, cause: errAborted, callCause: errAborted},
		"expired, without its End": {err: context.DeadlineExceeded, cause: errExpired},
	} {
		for use, usedBefore := range map[string]bool{"used before": true, "used after": false} {
			t.Run(name+", "+use, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := calls.Call[message]{ReceivedAt: time.Now(), Timeout: time.Second}
					if usedBefore {
						assert.NoError(t, k.Context(t.Context(), expired).Err())
					}
					if errors.Is(tt.cause, errExpired) {
						time.Sleep(time.Second)
						synctest.Wait()
					}
					for _, end := range tt.ends {
						k.End(end)
					}
					ctx := k.Context(t.Context(), expired)
					assert.Equal(t, tt.err, ctx.Err())
					assert.Equal(t, tt.cause, context.Cause(ctx))
					assert.Equal(t, tt.callCause, k.Cause())
					assert.Same(t, ctx, k.Context(t.Context(), expired))
					k.End(returned) // stops the timer
				})
			})
		}
	}
}

func TestCall_ContextEndsWithItsParent(t *testing.T) {
	parent, cancel := context.WithCancelCause(t.Context())
	var k calls.Call[message]
	ctx := k.Context(parent, expired)
	_, ok := ctx.Deadline()
	assert.False(t, ok, "a call without timeout")
	cancel(errAborted)
	assert.Equal(t, errAborted, context.Cause(ctx))
	assert.NoError(t, k.Cause(), "the call itself is open")
}

// TestCall_ContextExpiresByItsTimer ends a call a little before its context notices the deadline.
func TestCall_ContextExpiresByItsTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := calls.Call[message]{ReceivedAt: time.Now(), Timeout: time.Second}
		ctx := k.Context(t.Context(), expired)
		k.End(expired)
		assert.NoError(t, ctx.Err())
		<-ctx.Done()
		assert.Equal(t, context.DeadlineExceeded, ctx.Err())
		k.End(returned)
	})
}

// A hookedContext calls a function when another context is derived from it.
type hookedContext struct {
	context.Context //nolint:containedctx // it is one

	hook func()
}

func (c hookedContext) Done() <-chan struct{} {
	c.hook()
	return c.Context.Done()
}

// TestCall_ContextRacesHaveOneResult uses the context of a call, or ends the call, while its context is being
// created.
func TestCall_ContextRacesHaveOneResult(t *testing.T) {
	k := calls.Call[message]{ReceivedAt: time.Now(), Timeout: time.Hour}
	var other context.Context
	ctx := k.Context(hookedContext{t.Context(), sync.OnceFunc(func() { other = k.Context(t.Context(), expired) })}, expired)
	assert.Same(t, other, ctx)
	k.End(aborted)
	assert.Equal(t, errAborted, context.Cause(ctx))

	ended := calls.Call[message]{ReceivedAt: time.Now(), Timeout: time.Hour}
	ctx = ended.Context(hookedContext{t.Context(), sync.OnceFunc(func() { ended.End(aborted) })}, expired)
	assert.Equal(t, errAborted, context.Cause(ctx))
	assert.Equal(t, context.Canceled, ctx.Err())
}

// TestCall_ErrIsThatOfTheContext asks for the error before and after the context is used.
func TestCall_ErrIsThatOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			end  func(*calls.Call[message], *calls.ConnContext)
			want error
		}{
			"open":                     {func(*calls.Call[message], *calls.ConnContext) {}, nil},
			"answered":                 {func(k *calls.Call[message], _ *calls.ConnContext) { k.End(returned) }, context.Canceled},
			"aborted":                  {func(k *calls.Call[message], _ *calls.ConnContext) { k.End(aborted) }, context.Canceled},
			"after the deadline":       {func(*calls.Call[message], *calls.ConnContext) { time.Sleep(time.Second) }, context.DeadlineExceeded},
			"the connection is closed": {func(_ *calls.Call[message], c *calls.ConnContext) { c.Cancel(nil) }, context.Canceled},
		} {
			conn := &calls.ConnContext{Values: context.Background()}
			k := calls.Call[message]{ReceivedAt: time.Now(), Timeout: time.Second}
			assert.NoError(t, k.Err(conn, expired), name)
			tt.end(&k, conn)
			synctest.Wait()
			assert.Equal(t, tt.want, k.Err(conn, expired), name)
			assert.Equal(t, tt.want, k.Context(conn, expired).Err(), name)
			assert.Equal(t, tt.want, k.Err(conn, expired), name)
			k.End(returned)
		}
	})
}
