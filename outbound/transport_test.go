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

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/outbound"
)

// A roundTrip is an API.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func respond(code int, lines ...string) (*http.Response, error) {
	return &http.Response{StatusCode: code, Header: headers(lines...), Body: io.NopCloser(strings.NewReader("body"))}, nil
}

// A body knows whether it was closed, as a RoundTripper must.
type body struct {
	io.Reader

	closed int
}

func (b *body) Close() error {
	b.closed++
	return nil
}

func post(ctx context.Context, text string) (*http.Request, *body) {
	b := &body{Reader: strings.NewReader(text)}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.test/messages", b)
	if err != nil {
		panic(err)
	}
	return req, b
}

func transport(api roundTrip, opts outbound.Options) *outbound.Transport {
	opts.Base = api
	return outbound.NewTransport(memory.NewWindows(nil), &opts)
}

func TestCallersAreServedInOrder(t *testing.T) {
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
			if n%5 == 3 { // gives up
				time.AfterFunc(3*time.Second+time.Duration(n), cancel)
			} else {
				want = append(want, text)
			}
			wg.Go(func() {
				req, b := post(ctx, text)
				resp, err := tr.RoundTrip(req)
				if err != nil {
					assert.ErrorIs(t, err, context.Canceled)
					assert.Equal(t, 1, b.closed, "the body of a request that is not sent")
					return
				}
				assert.Equal(t, 200, resp.StatusCode)
			})
			synctest.Wait() // it is in line
		}
		wg.Wait()
		assert.Equal(t, want, served) // 3 was the first in line
	})
}

// TestRoutesWaitApart has routes that wait for different times.
func TestRoutesWaitApart(t *testing.T) {
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

// TestARefusedRequestIsSentAgainFirst has a window that somebody else uses up, while others
// wait already.
func TestARefusedRequestIsSentAgainFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served []string
		refusals := 0
		full := time.Now().Add(5 * time.Second)
		tr := transport(func(req *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			text, err := io.ReadAll(req.Body)
			require.NoError(t, err)
			if len(served) == 1 && time.Now().Before(full) {
				return respond(429, "X-RateLimit-Limit: 1", "X-RateLimit-Remaining: 0", "Retry-After: 5")
			}
			served = append(served, string(text))
			return respond(200, "X-RateLimit-Limit: 1", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 1")
		}, outbound.Options{OnRefused: func(route string, told outbound.Status) {
			refusals++
			assert.Equal(t, "POST api.test/messages", route)
			assert.Equal(t, 5*time.Second, told.RetryAfter)
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
		assert.Equal(t, 1, refusals)
	})
}

func TestRefusalsThatAreTheCallers(t *testing.T) {
	for _, c := range []struct {
		name     string
		retries  int
		replays  bool
		attempts int
	}{
		{"by default", 0, true, 4},
		{"as many as wanted", 1, true, 2},
		{"none", -1, true, 1},
		{"a body that cannot be sent again", 0, false, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			tr := transport(func(*http.Request) (*http.Response, error) {
				attempts++
				return respond(429, "Retry-After: 1")
			}, outbound.Options{Retries: c.retries})
			req, _ := post(t.Context(), "x")
			if c.replays {
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

func TestABodyThatCannotBeGot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := transport(func(*http.Request) (*http.Response, error) { return respond(429) }, outbound.Options{})
		req, _ := post(t.Context(), "x")
		req.GetBody = func() (io.ReadCloser, error) { return nil, io.ErrUnexpectedEOF }
		_, err := tr.RoundTrip(req)
		assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
}

// TestWhatWasNeverSent has a server that is away: nobody waits for a lease.
func TestWhatWasNeverSent(t *testing.T) {
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
		assert.Zero(t, time.Since(start), "what is not sent counts nowhere")
		request(t.Context(), tr)
		assert.Equal(t, 5*time.Second, time.Since(start), "what may have arrived counts for a lease")
	})
}

// broken are windows that cannot say anything.
type broken struct {
	outbound.Windows

	err error
}

func (b broken) Claim(ctx context.Context, route string) (outbound.Claim, error) {
	if b.Windows == nil {
		return outbound.Claim{}, b.err
	}
	return b.Windows.Claim(ctx, route)
}

func (b broken) Update(context.Context, string, outbound.Claim, outbound.Status) error { return b.err }

func TestWindowsThatFail(t *testing.T) {
	err := errors.New("the store is away")
	sent := 0
	api := roundTrip(func(*http.Request) (*http.Response, error) {
		sent++
		return respond(200)
	})
	tr := outbound.NewTransport(broken{err: err}, &outbound.Options{Base: api})
	for range 3 { // the line goes on
		req, b := post(t.Context(), "x")
		_, got := tr.RoundTrip(req)
		assert.Equal(t, err, got)
		assert.Equal(t, 1, b.closed)
	}
	assert.Zero(t, sent)

	var lost []error
	tr = outbound.NewTransport(broken{memory.NewWindows(nil), err}, &outbound.Options{
		Base:    api,
		OnError: func(err error) { lost = append(lost, err) },
	})
	assert.Equal(t, 200, request(t.Context(), tr), "the response is the caller's")
	require.Len(t, lost, 1)
	assert.ErrorIs(t, lost[0], err)
}

func TestNonsense(t *testing.T) {
	assert.Panics(t, func() { outbound.NewTransport(nil, nil) })
	for _, o := range []outbound.WindowsOptions{{Lease: -1}, {Lease: 1}, {GlobalLimit: -1}, {GlobalPer: -1}, {GlobalPer: 1}} {
		assert.Panics(t, func() { memory.NewWindows(&o) }, "%+v", o)
	}
}
