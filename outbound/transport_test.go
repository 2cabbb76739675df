package outbound_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/outbound"
)

// A roundTripFunc is an API.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func respond(code int, lines ...string) (*http.Response, error) {
	return &http.Response{StatusCode: code, Header: headers(lines...), Body: io.NopCloser(strings.NewReader("body"))}, nil
}

// A countingBody counts its Close calls. A RoundTripper must close every request body.
type countingBody struct {
	io.Reader

	closed int
}

func (b *countingBody) Close() error {
	b.closed++
	return nil
}

func post(ctx context.Context, text string) (*http.Request, *countingBody) {
	b := &countingBody{Reader: strings.NewReader(text)}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.test/messages", b)
	if err != nil {
		panic(err)
	}
	return req, b
}

func transport(api roundTripFunc, opts outbound.Options) *outbound.Transport {
	opts.Base = api
	return outbound.NewTransport(outbound.NewMemoryBudget(nil), &opts)
}

func TestTransport_ServesCallersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var served []string
		tr := transport(func(req *http.Request) (*http.Response, error) {
			text, err := io.ReadAll(req.Body)
			require.NoError(t, err)
			mu.Lock()
			served = append(served, string(text))
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			return respond(200, "X-RateLimit-Limit: 1", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 1")
		}, outbound.Options{})
		var want []string
		var wg sync.WaitGroup
		for n := range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			text := fmt.Sprint(n)
			if n%5 == 3 { // this caller gives up
				time.AfterFunc(3*time.Second+time.Duration(n), cancel)
			} else {
				want = append(want, text)
			}
			wg.Go(func() {
				req, b := post(ctx, text)
				resp, err := tr.RoundTrip(req)
				if err != nil {
					assert.ErrorIs(t, err, context.Canceled)
					assert.Equal(t, 1, b.closed, "the body of an unsent request must be closed")
					return
				}
				assert.Equal(t, 200, resp.StatusCode)
			})
			synctest.Wait() // until the caller waits in the queue
		}
		wg.Wait()
		assert.Equal(t, want, served) // caller 3 was first in the queue when it gave up
	})
}

func TestTransport_RoutesWaitIndependently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transport(func(req *http.Request) (*http.Response, error) {
			return respond(200, "X-RateLimit-Limit: 1", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: "+req.URL.Path[1:])
		}, outbound.Options{})
		start := time.Now()
		var wg sync.WaitGroup
		for _, seconds := range []int{3600, 1} {
			wg.Go(func() {
				for range 3 {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprint("http://api.test/", seconds), http.NoBody)
					require.NoError(t, err)
					_, err = tr.RoundTrip(req)
					require.NoError(t, err)
				}
				assert.Equal(t, time.Duration(2*seconds)*time.Second, time.Since(start))
			})
		}
		wg.Wait()
	})
}

// TestTransport_RetriesBeforeLaterRequests runs against an API whose window another client
// uses up while later requests already wait.
func TestTransport_RetriesBeforeLaterRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served []string
		rejections := 0
		fullUntil := time.Now().Add(5 * time.Second)
		tr := transport(func(req *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			text, err := io.ReadAll(req.Body)
			require.NoError(t, err)
			if len(served) == 1 && time.Now().Before(fullUntil) {
				return respond(429, "X-RateLimit-Limit: 1", "X-RateLimit-Remaining: 0", "Retry-After: 5")
			}
			served = append(served, string(text))
			return respond(200, "X-RateLimit-Limit: 1", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 1")
		}, outbound.Options{OnRateLimited: func(route string, status outbound.Status) {
			rejections++
			assert.Equal(t, "POST api.test/messages", route)
			assert.Equal(t, 5*time.Second, status.RetryAfter)
		}})
		var wg sync.WaitGroup
		var want []string
		for n := range 5 {
			text := fmt.Sprint(n)
			want = append(want, text)
			wg.Go(func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://api.test/messages", strings.NewReader(text))
				require.NoError(t, err)
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				assert.Equal(t, 200, resp.StatusCode)
			})
			synctest.Wait()
		}
		wg.Wait()
		assert.Equal(t, want, served)
		assert.Equal(t, 1, rejections)
	})
}

func TestTransport_ReturnsThe429AfterMaxRetries(t *testing.T) {
	for _, c := range []struct {
		name       string
		maxRetries int
		hasGetBody bool
		attempts   int
	}{
		{"default", 0, true, 4},
		{"one retry", 1, true, 2},
		{"no retries", -1, true, 1},
		{"body without GetBody", 0, false, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			tr := transport(func(*http.Request) (*http.Response, error) {
				attempts++
				return respond(429, "Retry-After: 1")
			}, outbound.Options{MaxRetries: c.maxRetries})
			req, _ := post(t.Context(), "x")
			if c.hasGetBody {
				req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }
			}
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err, c.name)
			assert.Equal(t, 429, resp.StatusCode, c.name)
			assert.Equal(t, c.attempts, attempts, c.name)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err, c.name)
			assert.Equal(t, "body", string(text), c.name)
		})
	}
}

func TestTransport_ReturnsTheErrorOfGetBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transport(func(*http.Request) (*http.Response, error) { return respond(429) }, outbound.Options{})
		req, _ := post(t.Context(), "x")
		req.GetBody = func() (io.ReadCloser, error) { return nil, io.ErrUnexpectedEOF }
		_, err := tr.RoundTrip(req)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
}

// TestTransport_FailedDialDoesNotCount connects to a server that is down.
func TestTransport_FailedDialDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := []error{
			&net.OpError{Op: "dial", Err: errors.New("refused")},
			&net.OpError{Op: "dial", Err: errors.New("refused")},
			&net.OpError{Op: "read", Err: errors.New("reset")},
			&net.OpError{Op: "read", Err: errors.New("reset")},
		}
		tr := transport(func(*http.Request) (*http.Response, error) {
			err := errs[0]
			errs = errs[1:]
			return nil, err
		}, outbound.Options{})
		start := time.Now()
		for range 3 {
			request(t.Context(), tr)
		}
		assert.Zero(t, time.Since(start), "an unsent request must not count")
		request(t.Context(), tr)
		assert.Equal(t, 5*time.Second, time.Since(start), "a request that may have arrived must count for a lease")
	})
}

// A failingBudget fails every Update, and every TryAcquire if its Budget is nil.
type failingBudget struct {
	outbound.Budget

	err error
}

func (b failingBudget) TryAcquire(ctx context.Context, route string) (outbound.Grant, error) {
	if b.Budget == nil {
		return outbound.Grant{}, b.err
	}
	return b.Budget.TryAcquire(ctx, route)
}

func (b failingBudget) Update(context.Context, string, outbound.Grant, outbound.Status) error {
	return b.err
}

func TestTransport_SendsNothingIfTheBudgetFails(t *testing.T) {
	err := errors.New("the store is unreachable")
	sent := 0
	api := roundTripFunc(func(*http.Request) (*http.Response, error) {
		sent++
		return respond(200)
	})
	tr := outbound.NewTransport(failingBudget{err: err}, &outbound.Options{Base: api})
	for range 3 { // a failure must pass the turn on
		req, b := post(t.Context(), "x")
		_, got := tr.RoundTrip(req)
		assert.Equal(t, err, got)
		assert.Equal(t, 1, b.closed)
	}
	assert.Zero(t, sent)

	var lost []error
	tr = outbound.NewTransport(failingBudget{outbound.NewMemoryBudget(nil), err}, &outbound.Options{
		Base:    api,
		OnError: func(err error) { lost = append(lost, err) },
	})
	assert.Equal(t, 200, request(t.Context(), tr), "a failed Update must not affect the response")
	require.Len(t, lost, 1)
	assert.ErrorIs(t, lost[0], err)
}

func TestBudgetOptions_PanicIfInvalid(t *testing.T) {
	assert.Panics(t, func() { outbound.NewTransport(nil, nil) })
	for _, o := range []outbound.BudgetOptions{{Lease: -1}, {Lease: 1}, {GlobalLimit: -1}, {GlobalPer: -1}, {GlobalPer: 1}} {
		assert.Panics(t, func() { outbound.NewMemoryBudget(&o) }, "%+v", o)
	}
}
