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
	"testing/synctest"
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
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		if status/100 == 3 {
			w.Header().Set("Location", "/elsewhere")
		}
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(server.Close)
	return durableobject.NewClient(server.URL, secret, nil), &requests
}

// TestLimiter_OnlyACompleteReplyIsADecision covers replies of other servers, of other versions and of
// Cloudflare itself.
func TestLimiter_OnlyACompleteReplyIsADecision(t *testing.T) {
	const json = "application/json"
	for name, tt := range map[string]struct {
		status            int
		contentType, body string
		want              string
	}{
		"too few":                {200, json, `{"v":1,"tick":1000,"held":[]}`, "answered 0 of 1 calls"},
		"too many":               {200, json, `{"v":1,"tick":1000,"held":[1,1]}`, "answered 2 of 1 calls"},
		"no numbers":             {200, json, `{"v":1,"tick":1000}`, "answered 0 of 1 calls"},
		"null":                   {200, json, `null`, "version 0"},
		"empty":                  {200, json, ``, "unexpected end"},
		"not decided":            {200, json, `{"v":1,"tick":1000,"held":[null]}`, "the Durable Object of the key is unavailable"},
		"another version":        {200, json, `{"v":2,"tick":1000,"held":[1]}`, "version 2; it must be 1"},
		"no version":             {200, json, `{"tick":1000,"held":[1]}`, "version 0"},
		"no tick":                {200, json, `{"v":1,"held":[1]}`, "resolution of 0 µs"},
		"negative tick":          {200, json, `{"v":1,"tick":-1,"held":[1]}`, "resolution of -1 µs"},
		"large tick":             {200, json, `{"v":1,"tick":1000001,"held":[1]}`, "resolution of 1000001 µs"},
		"more than a full one":   {200, json, `{"v":1,"tick":1000,"held":[3600000001]}`, "returned 3600000001 units"},
		"blocked too long":       {200, json, `{"v":1,"tick":1000,"held":[-9007199254740991]}`, "returned -9007199254740991 units"},
		"a fraction":             {200, json, `{"v":1,"tick":1000,"held":[1.5]}`, "not the Worker's"},
		"an exponent":            {200, json, `{"v":1,"tick":1000,"held":[1e3]}`, "not the Worker's"},
		"a string":               {200, json, `{"v":1,"tick":1000,"held":["1"]}`, "not the Worker's"},
		"truncated":              {200, json, `{"v":1,"tick":1000,"held":[1`, "unexpected end"},
		"two values":             {200, json, `{"v":1,"tick":1000,"held":[1]}{}`, "after top-level value"},
		"huge":                   {200, json, `{"v":1,"tick":1000,"held":[1]}` + strings.Repeat(" ", 1<<20), "longer than 65536 bytes"},
		"HTML":                   {200, "text/html; charset=utf-8", `<html>`, "is not JSON"},
		"JSON as HTML":           {200, "text/html", `{"v":1,"tick":1000,"held":[1]}`, "is not JSON"},
		"no content":             {204, json, ``, "status 204"},
		"created":                {201, json, `{"v":1,"tick":1000,"held":[1]}`, "status 201"},
		"redirect":               {302, json, ``, "status 302; redirects are not followed"},
		"redirect of the method": {307, json, ``, "status 307; redirects are not followed"},
		"permanent redirect":     {308, json, ``, "status 308; redirects are not followed"},
		"invalid":                {400, json, `{"v":1,"error":"invalid"}`, "status 400; the Worker must be of this version"},
		"wrong secret":           {401, json, ``, "status 401; the secret must be"},
		"not found":              {404, "text/plain", ``, "status 404; the URL must be"},
		"limited by Cloudflare":  {429, "text/html", `error code: 1027`, "status 429; Cloudflare limits"},
		"failed":                 {500, "text/html", `error code: 1101`, "status 500"},
		"overloaded":             {503, json, `{"v":1,"error":"overloaded"}`, "overloaded; more SHARDS"},
		"unavailable":            {503, json, `{"v":1,"error":"unavailable"}`, "Object is unavailable"},
		"bad gateway":            {502, "text/html", strings.Repeat("<br>", 1<<18), "status 502"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, requests := replies(t, tt.status, tt.contentType, tt.body)
			l := durableobject.NewLimiter(client, limit.PerHour(10))
			d, err := l.Consume(t.Context(), ann(), 1)
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "durableobject: limiter: ")
			assert.NotContains(t, err.Error(), secret)
			assert.Zero(t, d)
			assert.EqualValues(t, 1, requests.Load(), "the request must not be repeated")
			_, err = l.Consume(t.Context(), ann(), 1)
			require.Error(t, err, "an error is not in the cache")
		})
	}
}

func TestLimiter_ReplyIsADecision(t *testing.T) {
	client, _ := replies(t, 200, "application/json; charset=utf-8", `{"v":1,"tick":1000,"held":[3600000000]}`)
	d, err := durableobject.NewLimiter(client, limit.PerHour(10)).Consume(t.Context(), ann(), 1)
	require.NoError(t, err)
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: 6 * time.Minute}, d)

	client, _ = replies(t, 200, "application/json", `{"v":1,"tick":1000,"held":[-4503599627371497]}`)
	d, err = durableobject.NewLimiter(client, limit.PerHour(10)).Consume(t.Context(), ann(), 1)
	require.NoError(t, err)
	assert.Equal(t, limit.Decision{Limit: 10, RetryAfter: 2 * time.Millisecond, ResetAfter: 2 * time.Millisecond, Reason: limit.Blocked}, d)
}

func TestLimiter_OtherCallsNeedACompleteReply(t *testing.T) {
	for body, want := range map[string]string{
		`{"v":1,"tick":1000,"held":[null]}`: "unavailable",
		`{"v":1,"tick":1000,"held":[]}`:     "answered 0 of 1 calls",
	} {
		client, _ := replies(t, 200, "application/json", body)
		l := durableobject.NewLimiter(client, limit.PerHour(10))
		for name, call := range map[string]func() error{
			"Refund":         func() error { return l.Refund(t.Context(), ann(), 1) },
			"Charge":         func() error { return l.Charge(t.Context(), ann(), 1) },
			"Reserve":        func() error { _, err := l.Reserve(t.Context(), ann(), 1, time.Second); return err },
			"ConsumeKeeping": func() error { _, err := l.ConsumeKeeping(t.Context(), ann(), 1, 1); return err },
			"ConsumeUpTo":    func() error { _, _, err := l.ConsumeUpTo(t.Context(), ann(), 1); return err },
		} {
			assert.ErrorContains(t, call(), want, name)
		}
	}
	for body, want := range map[string]string{
		`{"v":1,"tick":1000,"done":[false]}`:     "unavailable",
		`{"v":1,"tick":1000,"done":[null]}`:      "unavailable",
		`{"v":1,"tick":1000,"done":[]}`:          "answered 0 of 1 calls",
		`{"v":1,"tick":1000,"done":[true,true]}`: "answered 2 of 1 calls",
		`{"tick":1000,"done":[true]}`:            "version 0",
	} {
		client, _ := replies(t, 200, "application/json", body)
		l := durableobject.NewLimiter(client, limit.PerHour(10))
		assert.ErrorContains(t, l.Block(t.Context(), ann(), time.Second), want, body)
		assert.ErrorContains(t, l.Reset(t.Context(), ann()), want, body)
	}
	for body, want := range map[string]string{
		`{"v":1,"tick":1000,"permits":[null]}`:        "unavailable",
		`{"v":1,"tick":1000,"permits":[]}`:            "answered 0 of 1 calls",
		`{"v":1,"tick":1000,"permits":[[1]]}`:         "returned [1] for a permit",
		`{"v":1,"tick":1000,"permits":[[2,1]]}`:       "returned [2 1] for a permit",
		`{"v":1,"tick":1000,"permits":[[1,0]]}`:       "returned [1 0] for a permit",
		`{"v":1,"tick":1000,"permits":[[1,1,1]]}`:     "returned [1 1 1] for a permit",
		`{"v":1,"tick":1000,"permits":[[1,1],[1,1]]}`: "answered 2 of 1 calls",
		`{"tick":1000,"permits":[[1,1]]}`:             "version 0",
	} {
		client, _ := replies(t, 200, "application/json", body)
		p, err := durableobject.NewSemaphore(client, "renders", 1).Acquire(t.Context(), ann())
		assert.ErrorContains(t, err, want, body)
		assert.Zero(t, p)
	}
}

// TestLimiter_RequestIsThatOfTheProtocol also holds the bytes of a key that JSON would change.
func TestLimiter_RequestIsThatOfTheProtocol(t *testing.T) {
	var got atomic.Pointer[string]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		text := fmt.Sprintf("%s %s %d %s", r.Method, r.URL.Path, r.ContentLength-int64(len(body)), body)
		got.Store(&text)
		assert.Equal(t, "Bearer "+secret, r.Header.Get("Authorization"))
		assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		for name := range r.Header {
			assert.NotContains(t, name, "Idempotency")
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"v":1,"tick":1000,"held":[0],"done":[true],"permits":[[0,1]]}`)
	}))
	t.Cleanup(server.Close)
	client := durableobject.NewClient(server.URL, secret, nil)
	l := durableobject.NewLimiter(client, limit.PerMinute(7).Named(`say "hi"`))
	fresh := func() *durableobject.Limiter { return durableobject.NewLimiter(client, limit.PerMinute(7).Named("p")) }
	key := limit.Key{"user", "\xff", `jörg"\`}
	const name = `say%20%22hi%22:user:%FF:j%C3%B6rg%22%5C`
	for want, call := range map[string]func() error{
		`/v1/limit 0 {"v":1,"policy":[7,60000000,7],"calls":[["` + name + `",120000000,0,120000000]]}`: func() error {
			_, err := l.Consume(t.Context(), key, 2)
			return err
		},
		`/v1/limit 0 {"v":1,"policy":[7,60000000,7],"calls":[["p",0,0,1]]}`: func() error {
			_, err := fresh().Consume(t.Context(), limit.Key{}, 8)
			return err
		},
		`/v1/limit 0 {"v":1,"policy":[7,60000000,7],"calls":[["p:a",60000000,-7000000,60000000]]}`: func() error {
			_, err := fresh().Reserve(t.Context(), limit.Key{"a"}, 1, time.Second)
			return err
		},
		`/v1/limit 0 {"v":1,"policy":[7,60000000,7],"calls":[["p:a",60000000,120000000,60000000]]}`: func() error {
			_, err := fresh().ConsumeKeeping(t.Context(), limit.Key{"a"}, 1, 2)
			return err
		},
		`/v1/limit 0 {"v":1,"policy":[7,60000000,7],"calls":[["p:a",420000000,0,60000000]]}`: func() error {
			_, _, err := fresh().ConsumeUpTo(t.Context(), limit.Key{"a"}, 100)
			return err
		},
		`/v1/limit 0 {"v":1,"policy":[7,60000000,7],"calls":[["p:a",60000000,-60000000,1]]}`: func() error {
			return fresh().Charge(t.Context(), limit.Key{"a"}, 1)
		},
		`/v1/limit 0 {"v":1,"policy":[7,60000000,7],"calls":[["p:a",-60000000,0,1]]}`: func() error {
			return fresh().Refund(t.Context(), limit.Key{"a"}, 1)
		},
		`/v1/block 0 {"v":1,"calls":[["p:a",1500000]]}`: func() error {
			return fresh().Block(t.Context(), limit.Key{"a"}, 1500*time.Millisecond)
		},
		`/v1/block 0 {"v":1,"calls":[["p:a",0]]}`: func() error { return fresh().Reset(t.Context(), limit.Key{"a"}) },
	} {
		require.NoError(t, call())
		assert.Equal(t, "POST "+want, *got.Load())
	}
	p, err := durableobject.NewSemaphore(client, "renders", 3).Acquire(t.Context(), limit.Key{"a"})
	require.NoError(t, err)
	assert.Equal(t, limit.Permit{InUse: 1, Limit: 3}, p)
	assert.Regexp(t, `^POST /v1/semaphore 0 {"v":1,"calls":\[\["renders:a","[A-Z2-7]{26}",3,10000,0\]\]}$`, *got.Load())
}

// TestLimiter_NeverRepeatsARequest closes connections at several times after a request. A request
// that arrived may have been executed.
func TestLimiter_NeverRepeatsARequest(t *testing.T) {
	const reply = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
	const body = `{"v":1,"tick":1000,"held":[10]}`
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
			l := durableobject.NewLimiter(durableobject.NewClient("http://"+listener.Addr().String(), secret, nil), limit.PerHour(100))
			const rounds = 20
			for n := range rounds {
				d, err := l.Consume(t.Context(), ann(), 0)
				require.NoError(t, err, "the connection is new")
				assert.True(t, d.Allowed)
				_, err = l.Consume(t.Context(), ann(), 0)
				require.Error(t, err, "the connection is used again, and closed")
				assert.NotContains(t, err.Error(), secret)
				require.EqualValues(t, 2*(n+1), requests.Load())
			}
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
	_, err := l.Consume(t.Context(), ann(), 1)
	require.EqualError(t, err, `durableobject: limiter: Post "https://limits.example/v1/limit": no network`)
	require.Error(t, l.Block(t.Context(), ann(), time.Second))
	assert.EqualValues(t, 2, sent.Load())
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// TestLimiter_ReturnsAtDeadline has a server that does not answer, or not completely.
func TestLimiter_ReturnsAtDeadline(t *testing.T) {
	for name, begin := range map[string]string{"no reply": "", "half a body": `{"v":1,`} {
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
				d, err := l.Consume(ctx, ann(), 1)
				cancel()
				assert.Zero(t, d)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Less(t, time.Since(start), timeout+500*time.Millisecond)
			}
			start := time.Now()
			_, err := l.Consume(context.Background(), ann(), 1)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Less(t, time.Since(start), 3*time.Second, "without a deadline, a second is the bound")
		})
	}
}

func TestLimiter_CanceledContextSendsNothing(t *testing.T) {
	client, requests := replies(t, 200, "application/json", `{"v":1,"tick":1000,"held":[1]}`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := durableobject.NewLimiter(client, limit.PerHour(1)).Consume(ctx, ann(), 1)
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, requests.Load())
}

func TestLimiter_ConnectionIsUsedAgainAfterErrors(t *testing.T) {
	var dialed atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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
		_, err := l.Consume(t.Context(), ann(), 1)
		require.Error(t, err)
	}
	assert.EqualValues(t, 1, dialed.Load())
}

func TestLimiter_InvalidArgumentsAreErrors(t *testing.T) {
	client, requests := replies(t, 200, "application/json", `{}`)
	l := durableobject.NewLimiter(client, limit.PerHour(10))
	_, err := l.Reserve(t.Context(), ann(), 1, 2*time.Hour)
	require.ErrorContains(t, err, "durableobject: maxWait is 2h0m0s")
	_, err = l.Consume(t.Context(), ann(), -1)
	require.ErrorContains(t, err, "durableobject: cost is -1")
	_, err = l.ConsumeKeeping(t.Context(), ann(), 1, -1)
	require.ErrorContains(t, err, "durableobject: keep is -1")
	_, _, err = l.ConsumeUpTo(t.Context(), ann(), -1)
	require.ErrorContains(t, err, "durableobject: most is -1")
	require.ErrorContains(t, l.Charge(t.Context(), ann(), 11), "from 0 to the capacity of 10")
	require.ErrorContains(t, l.Refund(t.Context(), ann(), -1), "durableobject: refund is -1")
	require.ErrorContains(t, l.Block(t.Context(), ann(), 0), "durableobject: a block of 0s")
	require.NoError(t, l.Charge(t.Context(), ann(), 0))
	require.NoError(t, l.Refund(t.Context(), ann(), 0))
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
	assert.PanicsWithValue(t, "durableobject: NewLimiter needs a client", func() { durableobject.NewLimiter(nil, limit.PerHour(1)) })
	assert.Panics(t, func() { durableobject.NewLimiter(client, limit.Policy{}) })
	assert.PanicsWithValue(t, "durableobject: NewSemaphore needs a client", func() { durableobject.NewSemaphore(nil, "x", 1) })
	assert.PanicsWithValue(t, "durableobject: NewSemaphore needs a name", func() { durableobject.NewSemaphore(client, "", 1) })
	assert.PanicsWithValue(t, "durableobject: NewSemaphore with 0 permits; it must be at least 1", func() { durableobject.NewSemaphore(client, "x", 0) })
}

func TestLimiter_CachedWaitsEndAtWholeTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := roundTripper(func(*http.Request) (*http.Response, error) {
			header := http.Header{"Content-Type": {"application/json"}}
			return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(strings.NewReader(`{"v":1,"tick":1000,"held":[0]}`))}, nil
		})
		client := durableobject.NewClient("https://limits.example", secret, &durableobject.Options{HTTPClient: &http.Client{Transport: transport}})
		l := durableobject.NewLimiter(client, limit.PerSecond(300))
		d, err := l.Consume(t.Context(), ann(), 1)
		require.NoError(t, err)
		assert.Equal(t, 4*time.Millisecond, d.RetryAfter, "3,334 µs rounded up")
		time.Sleep(1600 * time.Microsecond)
		d, err = l.Consume(t.Context(), ann(), 1)
		require.NoError(t, err)
		assert.Equal(t, 2400*time.Microsecond, d.RetryAfter)
	})
}
