package redisbudget_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/outbound"
	"github.com/penstock-go/penstock/outbound/redisbudget"
)

type apiOptions struct {
	limit     int // per path and window; a window begins when its first request arrives
	per       time.Duration
	global    int // of all paths together in any globalPer; 0 if there is none
	globalPer time.Duration
	latency   time.Duration // maximum per direction; one in twenty takes up to ten times as long
}

// A fakeAPI is a server that has limits like Discord's and counts violations.
type fakeAPI struct {
	*httptest.Server

	options apiOptions
	hung    chan struct{} // receives a value for each request to /hang, which gets no response

	mu       sync.Mutex
	routes   map[string]*apiWindow
	recent   []time.Time // arrivals in the last globalPer
	served   int
	rejected int
	violated []string // names of the exceeded limits
}

type apiWindow struct {
	start time.Time
	used  int
}

func newAPI(t *testing.T, options apiOptions) *fakeAPI {
	a := &fakeAPI{options: options, routes: map[string]*apiWindow{}, hung: make(chan struct{}, 100)}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/hang" && req.Header.Get("Answer") == "" {
		a.hung <- struct{}{}
		<-req.Context().Done()
		return
	}
	a.delay()
	code := a.accept(req.URL.Path, w.Header())
	a.delay()
	w.WriteHeader(code)
}

func (a *fakeAPI) delay() {
	switch {
	case a.options.latency == 0:
	case rand.IntN(20) == 0:
		time.Sleep(rand.N(10 * a.options.latency))
	default:
		time.Sleep(rand.N(a.options.latency))
	}
}

func (a *fakeAPI) accept(path string, h http.Header) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.exceedsGlobal(now) {
		h.Set("X-RateLimit-Global", "true")
		return a.reject(h, a.options.globalPer, "global")
	}
	r := a.routes[path]
	if r == nil || now.Sub(r.start) >= a.options.per {
		r = &apiWindow{start: now}
		a.routes[path] = r
	}
	left := a.options.per - now.Sub(r.start)
	h.Set("X-RateLimit-Limit", strconv.Itoa(a.options.limit))
	h.Set("X-RateLimit-Reset-After", fmt.Sprintf("%.3f", (left+time.Millisecond).Seconds()))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(max(a.options.limit-r.used-1, 0)))
	if r.used == a.options.limit {
		return a.reject(h, left, path)
	}
	r.used++
	a.served++
	return http.StatusOK
}

func (a *fakeAPI) exceedsGlobal(now time.Time) bool {
	if a.options.global == 0 {
		return false
	}
	for len(a.recent) > 0 && now.Sub(a.recent[0]) >= a.options.globalPer {
		a.recent = a.recent[1:]
	}
	if len(a.recent) == a.options.global {
		return true
	}
	a.recent = append(a.recent, now)
	return false
}

func (a *fakeAPI) reject(h http.Header, left time.Duration, name string) int {
	a.rejected++
	a.violated = append(a.violated, name)
	h.Set("Retry-After", strconv.Itoa(int(left/time.Second)+1))
	return http.StatusTooManyRequests
}

func (a *fakeAPI) check(t *testing.T, served int) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	assert.GreaterOrEqual(t, a.served, served)
	assert.Zero(t, a.rejected, "%v", a.violated)
}

// send sends requests to one path from concurrent workers.
func (a *fakeAPI) send(t *testing.T, budget outbound.Budget, requests, workers int) {
	t.Helper()
	n := node{URL: a.URL, Requests: requests, Workers: workers, Paths: 1}
	require.Equal(t, requests, n.run(t.Context(), budget))
}

// A countingBudget counts the calls of TryAcquire.
type countingBudget struct {
	outbound.Budget

	attempts atomic.Int64
}

func (c *countingBudget) TryAcquire(ctx context.Context, route string) (outbound.Grant, error) {
	c.attempts.Add(1)
	return c.Budget.TryAcquire(ctx, route)
}

// A node is a process that sends requests.
type node struct {
	Redis, URL string
	Options    outbound.BudgetOptions
	Requests   int
	Workers    int
	Paths      int
	Hang       bool // send one request to /hang

	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

const nodeEnv = "PENSTOCK_OUTBOUND_NODE"

// TestOutboundNode is the main function of a node process.
func TestOutboundNode(t *testing.T) {
	text := os.Getenv(nodeEnv)
	if text == "" {
		t.Skip("only runs as a child process of other tests")
	}
	var n node
	require.NoError(t, json.Unmarshal([]byte(text), &n))
	client := goredis.NewClient(&goredis.Options{Addr: n.Redis})
	defer func() { _ = client.Close() }()
	_, err := fmt.Fprintf(os.Stdout, "answered %d\n", n.run(t.Context(), redisbudget.New(client, "{bot}:", &n.Options)))
	require.NoError(t, err)
}

// run returns how many requests got status 200.
func (n *node) run(ctx context.Context, budget outbound.Budget) int {
	base := &http.Transport{MaxIdleConnsPerHost: n.Workers, MaxIdleConns: n.Workers}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: outbound.NewTransport(budget, &outbound.Options{Base: base})}
	var left, answered atomic.Int64
	left.Store(int64(n.Requests))
	var wg sync.WaitGroup
	for worker := range n.Workers {
		wg.Go(func() {
			number := worker % n.Paths
			path := fmt.Sprint("/", number)
			if n.Hang {
				path = "/hang"
			}
			for sent := 1; left.Add(-1) >= 0; sent++ {
				if get(ctx, client, n.URL+path) == http.StatusOK {
					answered.Add(1)
				}
				// Some paths get more requests than their limits allow, others get bursts. Requests
				// in flight at the end of a window matter only if the next window becomes full.
				if sent%5 == 0 {
					time.Sleep(time.Duration(number%5) * rand.N(800*time.Millisecond))
				}
			}
		})
	}
	wg.Wait()
	return int(answered.Load())
}

// get returns the status code, or 0 after an error.
func get(ctx context.Context, client *http.Client, url string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func (n *node) start(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(n)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	n.cmd = exec.Command(self, "-test.run=^TestOutboundNode$")
	n.cmd.Env = append(os.Environ(), nodeEnv+"="+string(text))
	n.cmd.Stdout, n.cmd.Stderr = &n.stdout, &n.stderr
	require.NoError(t, n.cmd.Start())
	t.Cleanup(n.kill)
}

// kill ends the process without any cleanup.
func (n *node) kill() {
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

func (n *node) finish(t *testing.T) {
	t.Helper()
	require.NoError(t, n.cmd.Wait(), "%s%s", &n.stdout, &n.stderr)
	assert.Contains(t, n.stdout.String(), fmt.Sprintf("answered %d\n", n.Requests))
}

var busyAPI = apiOptions{
	limit: 8, per: 80 * time.Millisecond,
	global: 450, globalPer: 200 * time.Millisecond,
	latency: 5 * time.Millisecond,
}

// processLease is longer than a busy machine stops a process: only a process that is killed may lose the lease of
// a request.
const processLease = 15 * time.Second

func startNodes(t *testing.T, a *fakeAPI, requests int) []*node {
	t.Helper()
	server := redistest.Start(t)
	var nodes []*node
	for range 4 {
		n := &node{
			Redis: server.Addr, URL: a.URL, Requests: requests / 4, Workers: 80, Paths: 20,
			Options: outbound.BudgetOptions{GlobalLimit: int64(a.options.global), GlobalPer: a.options.globalPer, Lease: processLease},
		}
		n.start(t)
		nodes = append(nodes, n)
	}
	return nodes
}

// TestBudget_FourProcessesExceedNoLimit sends 10,000 requests to twenty routes, more than the
// limits of some routes allow.
func TestBudget_FourProcessesExceedNoLimit(t *testing.T) {
	testscale.FullOnly(t, "TestBudget_KilledProcessBlocksForOneLease")
	t.Parallel()
	a := newAPI(t, busyAPI)
	start := time.Now()
	for _, n := range startNodes(t, a, 10_000) {
		n.finish(t)
	}
	a.check(t, 10_000)
	t.Logf("10,000 requests in %v", time.Since(start))
}

// TestBudget_KilledProcessExceedsNoLimit kills one of four processes while they send.
func TestBudget_KilledProcessExceedsNoLimit(t *testing.T) {
	testscale.FullOnly(t, "TestBudget_KilledProcessBlocksForOneLease")
	t.Parallel()
	a := newAPI(t, busyAPI)
	nodes := startNodes(t, a, 6_000)
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.served > 2000
	}, 30*time.Second, time.Millisecond)
	nodes[0].kill()
	for _, n := range nodes[1:] {
		n.finish(t)
	}
	a.check(t, 4_500)
}

// TestBudget_KilledProcessBlocksForOneLease kills a process that holds the only request that may
// be in flight.
func TestBudget_KilledProcessBlocksForOneLease(t *testing.T) {
	t.Parallel()
	a := newAPI(t, apiOptions{limit: 5, per: time.Second})
	server := redistest.Start(t)
	options := outbound.BudgetOptions{Lease: 2 * time.Second}
	n := &node{Redis: server.Addr, URL: a.URL, Requests: 1, Workers: 1, Paths: 1, Hang: true, Options: options}
	started := time.Now()
	n.start(t)
	<-a.hung
	n.kill()
	killed := time.Now()
	budget := redisbudget.New(server.Client(t), "{bot}:", &options)
	client := &http.Client{Transport: answerRequested{outbound.NewTransport(budget, nil)}}
	require.Equal(t, http.StatusOK, get(t.Context(), client, a.URL+"/hang"))
	assert.GreaterOrEqual(t, time.Since(started), options.Lease)
	assert.Less(t, time.Since(killed), options.Lease+20*time.Second)
	a.check(t, 1)
}

// An answerRequested transport asks the fakeAPI to answer requests to /hang.
type answerRequested struct{ http.RoundTripper }

func (r answerRequested) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Answer", "yes")
	return r.RoundTripper.RoundTrip(req)
}

func headersOf(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}
