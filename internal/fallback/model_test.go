package fallback_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

// TestModel_ExactlyOnceInBothDirections has clients whose requests are lost, delayed, and sent twice, and whose responses
// are lost and cut off, on one node or on three. The model is two counters: the server must handle 1, 2, 3 and so on,
// and so must the client receive. A connection may be lost, because nothing gets through for ten seconds; then what
// has arrived must be a beginning of that.
func TestModel_ExactlyOnceInBothDirections(t *testing.T) {
	lost, seeds := 0, testscale.Tiers(12, 20, 100)
	for seed := range seeds {
		runSynctest(t, fmt.Sprint(seed), func(t *testing.T) {
			m := newModel(t, uint64(seed))
			if m.run() {
				lost++
			}
		})
	}
	t.Logf("%d of %d connections were lost", lost, seeds)
	assert.LessOrEqual(t, lost, 1+seeds/10, "connections that were lost")
}

// modelMessages are sent in each direction.
const modelMessages = 120

// A model is a client behind a bad network.
type model struct {
	t      *testing.T
	mode   string
	client *client
	do     func(*http.Request) (*http.Response, error)

	handled  *recorder[int]
	received int // belongs to downs
	ack      atomic.Uint64

	mu  sync.Mutex
	rng *rand.Rand
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 37)), handled: &recorder[int]{}}
	m.mode = []string{"stream", "poll"}[m.rng.IntN(2)]
	n := []int{1, 3}[m.rng.IntN(2)]
	setUp := func(r *router.Router) {
		router.On(r, func(_ *router.Context, e Echo) error {
			m.handled.add(e.N)
			return nil
		})
	}
	opts := router.Options{OnOpen: func(ctx context.Context, c *router.Conn) error {
		go m.send(ctx, c)
		return nil
	}}
	nodes := newNodes(t, n, opts, setUp)
	nodes.choose = func() int { return m.intN(n) }
	m.client = nodes.client(t)
	m.do, m.client.do = m.client.do, m.faulty
	return m
}

// send sends the numbers of the server. Some are larger than a window.
func (m *model) send(ctx context.Context, c *router.Conn) {
	for n := 1; n <= modelMessages; n++ {
		size := 10
		if m.intN(20) == 0 {
			size = m.intN(100 << 10)
		}
		if c.SendWait(ctx, text{fmt.Sprintf("%d %s", n, strings.Repeat("x", size))}) != nil {
			return
		}
		if m.intN(3) == 0 {
			time.Sleep(m.upTo(time.Second))
		}
	}
}

func (m *model) intN(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

func (m *model) upTo(d time.Duration) time.Duration { return time.Duration(m.intN(int(d))) }

var errNetwork = errors.New("the network has lost it")

// faulty is a request over the network.
func (m *model) faulty(req *http.Request) (*http.Response, error) {
	body := must(io.ReadAll(req.Body))
	send := func() (*http.Response, error) {
		again := req.Clone(req.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		return m.do(again)
	}
	time.Sleep(m.upTo(200 * time.Millisecond))
	switch m.intN(10) {
	case 0:
		return nil, errNetwork
	case 1, 2: // a proxy sends it again, soon or late
		go func() {
			time.Sleep(m.upTo(3 * time.Second))
			if resp, err := send(); err == nil {
				time.AfterFunc(m.upTo(3*time.Second), func() { _ = resp.Body.Close() })
				_, _ = io.Copy(io.Discard, resp.Body)
			}
		}()
	}
	resp, err := send()
	if err != nil {
		return nil, err
	}
	switch m.intN(10) {
	case 0:
		_ = resp.Body.Close()
		return nil, errNetwork
	case 1, 2:
		resp.Body = &cutBody{resp.Body, m.intN(3000)}
	}
	time.Sleep(m.upTo(200 * time.Millisecond))
	return resp, nil
}

// A cutBody fails after some bytes.
type cutBody struct {
	io.ReadCloser
	left int
}

func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errNetwork
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// run runs the model, and reports whether the connection was lost.
func (m *model) run() (lost bool) {
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	if !m.open(ctx) {
		return true
	}
	var wg sync.WaitGroup
	var upLost, downLost bool
	wg.Go(func() { upLost = !m.ups(ctx) })
	wg.Go(func() { downLost = !m.downs(ctx) })
	wg.Wait()
	synctest.Wait()
	time.Sleep(5 * time.Second) // late copies change nothing
	handled := m.handled.all()
	for i, n := range handled {
		require.Equal(m.t, i+1, n, "the server has handled %v", handled)
	}
	if upLost || downLost {
		return true
	}
	assert.Len(m.t, handled, modelMessages)
	assert.Equal(m.t, modelMessages, m.received)
	return false
}

// open opens a connection. If the answer is lost, another one is opened, of which the server knows the last one only.
func (m *model) open(ctx context.Context) bool {
	for range 20 {
		resp, err := m.client.try(ctx, "open", fmt.Sprintf(`{"mode":%q}`, m.mode))
		if err != nil {
			continue
		}
		e, err := readEvents(resp).next()
		_ = resp.Body.Close()
		if err == nil {
			m.client.secret = e.secret(m.t)
			return true
		}
	}
	return false
}

// ups sends the numbers of the client, and returns false if the connection is lost.
func (m *model) ups(ctx context.Context) bool {
	next := 1
	for seq := 1; next <= modelMessages; seq++ {
		var lines []string
		for range min(1+m.intN(8), modelMessages+1-next) {
			lines = append(lines, event(next))
			next++
		}
		body := fmt.Sprintf(`{"secret":%q,"seq":%d,"ack":%d}`, m.client.secret, seq, m.ack.Load()) + "\n" + strings.Join(lines, "\n")
		for {
			status := m.tryUp(ctx, body)
			if status == http.StatusNoContent {
				break
			}
			if status == http.StatusConflict {
				return false
			}
			time.Sleep(m.upTo(time.Second))
		}
		time.Sleep(m.upTo(time.Second))
	}
	return true
}

// tryUp returns the status, or 0 if there is no answer.
func (m *model) tryUp(ctx context.Context, body string) int {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	resp, err := m.client.try(ctx, "up", body)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// downs receives the numbers of the server, and returns false if the connection is lost.
func (m *model) downs(ctx context.Context) bool {
	for m.received < modelMessages {
		resp, err := m.client.try(ctx, "down", fmt.Sprintf(`{"secret":%q,"ack":%d,"mode":%q}`, m.client.secret, m.ack.Load(), m.mode))
		if err != nil {
			continue
		}
		switch resp.StatusCode {
		case http.StatusOK:
			if !m.readDown(ctx, readEvents(resp)) {
				return false
			}
		case http.StatusConflict:
			_ = resp.Body.Close()
			return false
		default:
			time.Sleep(m.upTo(time.Second))
		}
		_ = resp.Body.Close()
	}
	return true
}

// readDown reads a response, and returns false if the connection is closed.
func (m *model) readDown(ctx context.Context, events *sseReader) bool {
	for m.received < modelMessages {
		e, err := events.next()
		if err != nil {
			return true
		}
		require.Equal(m.t, m.ack.Load()+1, e.id)
		switch e.name {
		case "close":
			return false
		case "":
			m.received++
			require.Contains(m.t, e.data, fmt.Sprintf(`"%d x`, m.received))
		}
		if m.ack.Store(e.id); e.id%5 == 0 || len(e.data) > 16<<10 {
			go m.tryUp(ctx, fmt.Sprintf(`{"secret":%q,"ack":%d}`, m.client.secret, e.id))
		}
	}
	return true
}
