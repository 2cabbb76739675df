package durableobject_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
)

const secret = "correct-horse-battery"

func ann() limit.Key { return limit.Key{"user", "", "ann"} }

// replies returns a client of a server that answers every request with a status, a content type
// and a body.
func replies(t *testing.T, status int, contentType, body string) (*durableobject.Client, *atomic.Int64) {
	t.Helper()
	var requests atomic.Int64
	worker := handlerTransport(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		if status/100 == 3 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	opts := &durableobject.Options{HTTPClient: &http.Client{Transport: worker}}
	return durableobject.NewClient("https://limits.example", secret, opts), &requests
}

// A handlerTransport calls a handler. On a machine that is busy, a request over the network may take
// longer than the second after which it ends.
type handlerTransport http.HandlerFunc

func (h handlerTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	recorder := httptest.NewRecorder()
	h(recorder, req)
	response := recorder.Result()
	response.Request = req
	return response, req.Context().Err()
}

// TestLimiter_NeverRepeatsARequest closes connections at several times after a request. A request
// that arrived may have been executed.
func TestLimiter_NeverRepeatsARequest(t *testing.T) {
	const reply = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
	const body = `{"v":2,"tick":1000,"replies":[[[10,1,0,0]]]}`
	for name, answer := range map[string]string{
		"without a reply":   "",
		"within the status": "HTTP/1.",
		"within the header": "HTTP/1.1 200 OK\r\nContent-",
		"within the body":   fmt.Sprintf(reply, 1000, body),
		"not HTTP":          "hello\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { _ = listener.Close() })
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					go serveThenClose(conn, &requests, fmt.Sprintf(reply, len(body), body), answer)
				}
			}()
			const rounds = 20
			closed := 0
			for n := range rounds {
				// Each round has a client without connections.
				l := durableobject.NewLimiter(durableobject.NewClient("http://"+listener.Addr().String(), secret, nil), limit.PerHour(100))
				d, err := limit.Consume(t.Context(), l, ann(), 0)
				require.NoError(t, err, "the connection is new")
				assert.True(t, d.Allowed)
				// The connection is used again, and closed, unless net/http has taken a new one: it does if a
				// busy machine does not report in 50 ms that the request has been written.
				if _, err = limit.Consume(t.Context(), l, ann(), 0); err != nil {
					assert.NotContains(t, err.Error(), secret)
					closed++
				}
				require.EqualValues(t, 2*(n+1), requests.Load())
			}
			assert.Positive(t, closed)
		})
	}
}

// serveThenClose answers the first request of a connection with first, and every further one with
// then and a close.
func serveThenClose(conn net.Conn, requests *atomic.Int64, first, then string) {
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	for answer := range strings.SplitSeq(first+"\x00"+then, "\x00") {
		request, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, request.Body)
		requests.Add(1)
		_, _ = io.WriteString(conn, answer)
	}
}

// TestClient_RequestCannotBeRepeated holds what net/http needs to send a request again: on a
// connection with HTTP/2, it does so after some resets of a stream.
func TestClient_RequestCannotBeRepeated(t *testing.T) {
	var sent atomic.Int64
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		sent.Add(1)
		assert.Nil(t, r.GetBody)
		assert.Equal(t, http.MethodPost, r.Method)
		assert.Positive(t, r.ContentLength)
		assert.NotContains(t, r.Header, "Idempotency-Key")
		assert.NotContains(t, r.Header, "X-Idempotency-Key")
		return nil, errors.New("no network")
	})
	client := durableobject.NewClient("https://limits.example", secret, &durableobject.Options{HTTPClient: &http.Client{Transport: transport}})
	l := durableobject.NewLimiter(client, limit.PerHour(10))
	_, err := limit.Consume(t.Context(), l, ann(), 1)
	require.EqualError(t, err, `durableobject: limiter: Post "https://limits.example/v2/limit": no network`)
	require.Error(t, l.Block(t.Context(), ann(), time.Second))
	assert.EqualValues(t, 2, sent.Load())
}

// answer returns a response of the Worker.
func answer(body string) *http.Response {
	header := http.Header{"Content-Type": {"application/json"}}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(body))}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// TestLimiter_ReturnsAtDeadline has a server that does not answer, or not completely.
func TestLimiter_ReturnsAtDeadline(t *testing.T) {
	for name, begin := range map[string]string{"no reply": "", "half a body": `{"v":2,`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stop := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if begin != "" {
					_, _ = io.WriteString(w, begin)
					_ = http.NewResponseController(w).Flush()
				}
				<-stop
			}))
			t.Cleanup(server.Close)
			t.Cleanup(func() { close(stop) })
			l := durableobject.NewLimiter(durableobject.NewClient(server.URL, secret, nil), limit.PerHour(10))
			for _, timeout := range []time.Duration{20 * time.Millisecond, 300 * time.Millisecond} {
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				start := time.Now()
				d, err := limit.Consume(ctx, l, ann(), 1)
				cancel()
				assert.Zero(t, d)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Less(t, time.Since(start), timeout+10*time.Second)
			}
			start := time.Now()
			_, err := limit.Consume(context.Background(), l, ann(), 1)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Less(t, time.Since(start), 30*time.Second, "without a deadline, a second is the bound")
		})
	}
}

func TestLimiter_CanceledContextSendsNothing(t *testing.T) {
	client, requests := replies(t, 200, "application/json", `{"v":2,"tick":1000,"replies":[[[1,1,0,0]]]}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := limit.Consume(ctx, durableobject.NewLimiter(client, limit.PerHour(1)), ann(), 1)
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, requests.Load())
}

func TestLimiter_ConnectionIsUsedAgainAfterErrors(t *testing.T) {
	var dialed, answered atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if answered.Add(1) > 50 { // the outage has ended
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"v":2,"tick":1000,"replies":[[[3600000000,1,0,0]]]}`)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, strings.Repeat("x", 50_000))
	}))
	t.Cleanup(server.Close)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	client := durableobject.NewClient(server.URL, secret, &durableobject.Options{HTTPClient: &http.Client{Transport: transport}})
	l := durableobject.NewLimiter(client, limit.PerHour(1))
	for range 50 {
		_, err := limit.Consume(t.Context(), l, ann(), 1)
		require.Error(t, err)
	}
	d, err := limit.Consume(t.Context(), l, ann(), 1)
	require.NoError(t, err)
	assert.True(t, d.Allowed)
	assert.EqualValues(t, 1, dialed.Load())
}

func TestLimiter_InvalidArgumentsAreErrors(t *testing.T) {
	client, requests := replies(t, 200, "application/json", `{}`)
	l := durableobject.NewLimiter(client, limit.PerHour(10))
	_, err := limit.Reserve(t.Context(), l, ann(), 1, 2*time.Hour)
	require.ErrorContains(t, err, "durableobject: maxWait is 2h0m0s")
	_, err = limit.Consume(t.Context(), l, ann(), -1)
	require.ErrorContains(t, err, "durableobject: cost is -1")
	_, err = limit.ConsumeKeeping(t.Context(), l, ann(), 1, -1)
	require.ErrorContains(t, err, "durableobject: keep is -1")
	_, _, err = limit.ConsumeUpTo(t.Context(), l, ann(), -1)
	require.ErrorContains(t, err, "durableobject: cost is -1")
	require.ErrorContains(t, limit.Charge(t.Context(), l, ann(), -1), "durableobject: cost is -1")
	require.ErrorContains(t, limit.Refund(t.Context(), l, ann(), -1), "durableobject: cost is -1")
	require.ErrorContains(t, l.Block(t.Context(), ann(), 0), "durableobject: a block of 0s")
	require.NoError(t, limit.Charge(t.Context(), l, ann(), 0))
	require.NoError(t, limit.Refund(t.Context(), l, ann(), 0))
	assert.Zero(t, requests.Load())
}

func TestConstructors_InvalidArgumentsPanic(t *testing.T) {
	for _, invalid := range []string{"", "limits.example", "ftp://limits.example", "https://", "/v1", "http://[::1", "https://\x00"} {
		assert.Panics(t, func() { durableobject.NewClient(invalid, secret, nil) }, invalid)
	}
	for _, invalid := range []string{"https://user:pass@limits.example", "https://limits.example?x=1", "https://limits.example#x"} {
		assert.PanicsWithValue(t, "durableobject: the URL of the Worker must have no user, query or fragment", func() { durableobject.NewClient(invalid, secret, nil) })
	}
	for _, invalid := range []string{"", "two words", "line\n", "größe"} {
		assert.PanicsWithValue(t, "durableobject: NewClient needs the secret of the Worker: printable ASCII without spaces",
			func() { durableobject.NewClient("https://limits.example", invalid, nil) })
	}
	client := durableobject.NewClient("https://limits.example", secret, &durableobject.Options{})
	assert.PanicsWithValue(t, "durableobject: a limiter needs a client, as NewClient returns it", func() { durableobject.NewLimiter(nil, limit.PerHour(1)) })
	assert.Panics(t, func() { durableobject.NewLimiter(client, limit.Policy{}) })
	assert.PanicsWithValue(t, "durableobject: NewSemaphore needs a client", func() { durableobject.NewSemaphore(nil, "x", 1) })
	assert.PanicsWithValue(t, "durableobject: NewSemaphore needs a name", func() { durableobject.NewSemaphore(client, "", 1) })
	assert.PanicsWithValue(t, "durableobject: NewSemaphore with 0 permits; it must be at least 1", func() { durableobject.NewSemaphore(client, "x", 0) })
}
