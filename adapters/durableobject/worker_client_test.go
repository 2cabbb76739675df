package durableobject_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject/internal/workerdtest"
	"github.com/penstock-go/penstock/limit"
)

// A worker sends raw requests to the Worker.
type worker struct {
	*workerdtest.Server
	t    testing.TB
	http *http.Client
}

// startWorker starts a Worker with a test clock and that many shards.
func startWorker(t testing.TB, shards int) *worker {
	s := startServer(t, func(o *workerdtest.Options) {
		o.TestClock = true
		o.Variables["SHARDS"] = strconv.Itoa(shards)
	})
	return newWorker(t, s)
}

func newWorker(t testing.TB, s *workerdtest.Server) *worker {
	w := &worker{Server: s, t: t, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	t.Cleanup(w.http.CloseIdleConnections)
	return w
}

// with returns a worker that fails another test.
func (w *worker) with(t testing.TB) *worker {
	other := *w
	other.t = t
	return &other
}

// noon is a time of the test clock, in microseconds since 1970.
const noon = 1_730_000_000_000_000

// A limitCall is [key, units, lowest, divisor].
type limitCall [4]any

func take(key string, units int64) limitCall { return limitCall{key, units, 0, max(units, 1)} }

// A response has the fields of the replies of all operations.
type response struct {
	V       int         `json:"v"`
	Tick    int64       `json:"tick"`
	Replies [][][]int64 `json:"replies"` // of each call, of each part
	Permits []*[2]int64 `json:"permits"`
	Error   string      `json:"error"`
}

// held returns the first number of each call of one part, nil if it was not decided.
func (r *response) held() []*int64 {
	held := make([]*int64, len(r.Replies))
	for i, parts := range r.Replies {
		if len(parts) == 1 && len(parts[0]) > 0 {
			held[i] = &parts[0][0]
		}
	}
	return held
}

// limit returns what the buckets held. A now of 0 selects the real clock.
func (w *worker) limit(now int64, p limit.Policy, calls ...limitCall) []int64 {
	w.t.Helper()
	reply := w.do(limitPath, now, limitBody(p, calls...))
	require.Len(w.t, reply.Replies, len(calls))
	held := make([]int64, len(calls))
	for i, h := range reply.held() {
		require.NotNil(w.t, h)
		held[i] = *h
	}
	return held
}

func limitBody(p limit.Policy, calls ...limitCall) map[string]any {
	u, all := p.Units(), make([][]any, len(calls))
	for i, c := range calls {
		all[i] = []any{[]any{"bucket", "p", c[0], "take", u.PerMicro(), u.PerToken(), p.Capacity, c[1], c[2], c[3], 0}}
	}
	return body(all...)
}

// body returns the body of a request with calls, each of which is its parts.
func body(calls ...[]any) map[string]any { return map[string]any{"v": 2, "calls": calls} }

func blockPart(key string, d time.Duration) []any {
	return []any{"bucket", "p", key, "block", d.Microseconds()}
}

// block blocks a key, or resets it if d is 0.
func (w *worker) block(now int64, key string, d time.Duration) {
	w.t.Helper()
	reply := w.do(limitPath, now, body([]any{blockPart(key, d)}))
	require.Equal(w.t, [][][]int64{{{1}}}, reply.Replies)
}

// Purposes of a call of a semaphore.
const (
	acquire = iota
	renew
	release
)

// permit executes a call of a semaphore with leases of 10 seconds.
func (w *worker) permit(now int64, key, holder string, permits int64, purpose int) (acquired bool, inUse int64) {
	w.t.Helper()
	call := [5]any{key, holder, permits, 10_000, purpose}
	reply := w.do(semaphorePath, now, body(call[:]))
	require.Len(w.t, reply.Permits, 1)
	require.NotNil(w.t, reply.Permits[0])
	return reply.Permits[0][0] == 1, reply.Permits[0][1]
}

// do executes an operation that must succeed.
func (w *worker) do(path string, now int64, body any) response {
	w.t.Helper()
	status, reply, err := w.try(path, now, body)
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, status, "%s", reply.Error)
	require.Equal(w.t, 2, reply.V)
	return reply
}

// try executes an operation. The body may be raw bytes.
func (w *worker) try(path string, now int64, body any) (int, response, error) {
	raw, ok := body.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return 0, response{}, err
		}
	}
	request, err := http.NewRequest(http.MethodPost, w.URL+path, bytes.NewReader(raw))
	if err != nil {
		return 0, response{}, err
	}
	request.Header.Set("Authorization", "Bearer "+w.Secret)
	request.Header.Set("Content-Type", "application/json")
	if now > 0 {
		request.Header.Set(workerdtest.ClockHeader, strconv.FormatInt(now, 10))
	}
	return w.send(request)
}

func (w *worker) send(request *http.Request) (int, response, error) {
	var reply response
	r, err := w.http.Do(request)
	if err != nil {
		return 0, reply, err
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, reply, err
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		return r.StatusCode, reply, fmt.Errorf("%q is not a reply: %w", text, err)
	}
	return r.StatusCode, reply, nil
}

// stats are what test/entry.ts reports about an object.
type stats struct {
	Written  int64    `json:"written"` // rows since the instance was created
	Records  int      `json:"records"`
	Leases   int      `json:"leases"`
	Alarm    *float64 `json:"alarm"` // milliseconds since 1970
	Instance string   `json:"instance"`
}

func (w *worker) stats(shard int) (s stats) {
	w.t.Helper()
	require.NoError(w.t, json.Unmarshal(w.get("/test/stats", url.Values{"shard": {strconv.Itoa(shard)}}), &s))
	return s
}

// sweep does what the alarm does.
func (w *worker) sweep(shard int, now int64) {
	w.t.Helper()
	w.get("/test/sweep", url.Values{"shard": {strconv.Itoa(shard)}, "now": {strconv.FormatInt(now, 10)}})
}

// operate executes an operation of test/entry.ts: abort restarts an object without what it has not
// stored, alarm runs its alarm, fail makes its calls throw.
func (w *worker) operate(operation string, shard int) {
	w.t.Helper()
	w.get("/test/"+operation, url.Values{"shard": {strconv.Itoa(shard)}})
}

func (w *worker) get(path string, query url.Values) []byte {
	w.t.Helper()
	r, err := w.http.Get(w.URL + path + "?" + query.Encode())
	require.NoError(w.t, err)
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	require.NoError(w.t, err)
	require.Equal(w.t, http.StatusOK, r.StatusCode, "%s", text)
	return text
}
