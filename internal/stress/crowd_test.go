//go:build linux

package stress_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

// maxGrowth bounds how much the heap grows after the second round of a server: pools and maps keep
// some memory.
const maxGrowth = 8 << 20

// TestCrowd runs rounds on servers with one and with several event loops. In each round, all
// connections are open at the same time; their clients make calls whose handlers block, abort some of
// them, read slowly, flood the server, and receive publications.
func TestCrowd(t *testing.T) {
	conns := testscale.Tiers(60, 60, 2000)
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-stress.seed=%d", *seed)
	limit := testscale.Duration(0, 3*time.Second)
	for _, procs := range testscale.SoakSample([]int{1, 2, 8}, 1) {
		t.Run(fmt.Sprintf("GOMAXPROCS=%d", procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			runCrowd(t, conns, limit/3)
		})
	}
}

// runCrowd runs rounds on one server.
func runCrowd(t *testing.T, conns int, limit time.Duration) {
	s := newServer(t, conns, crowdRoutes)
	crowdRound(t, s, conns, rand.New(rand.NewPCG(*seed, 0))) // starts what a process starts once
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors(t)
	start := time.Now()
	var heap uint64
	n := uint64(1)
	for ; n < 3 || time.Since(start) < limit; n++ {
		crowdRound(t, s, conns, rand.New(rand.NewPCG(*seed, n)))
		requireBaseline(t, goroutines, descriptors)
		if t.Failed() {
			t.Fatalf("round %d of -stress.seed=%d has failed", n, *seed)
		}
		if n == 2 {
			heap = liveHeap()
		}
	}
	after := liveHeap()
	t.Logf("%d rounds of %d connections; heap %d kB after the second, %d kB after the last", n, conns, heap>>10, after>>10)
	assert.LessOrEqual(t, after, heap+maxGrowth, "memory is left")
	s.shutdown(t)
	s.close()
}

func liveHeap() uint64 {
	var m runtime.MemStats
	for range 3 { // finalizers and pools take more than one
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// crowdTopics is the number of topics. Each connection subscribes to one.
const crowdTopics = 4

// A Join subscribes to the topic of a number.
type Join struct{ numbered }

func (Join) MessageType() string { return "JOIN" }

// A Joined answers a Join.
type Joined struct{ numbered }

func (Joined) MessageType() string { return "JOINED" }

// A Block is a call whose handler sleeps, or waits until it is aborted if its Pad is "abort".
type Block struct{ numbered }

func (Block) MessageType() string { return "BLOCK" }

// A Blocked answers a Block.
type Blocked struct{ numbered }

func (Blocked) MessageType() string { return "BLOCKED" }

// A Tick is the publication number Seq of a topic.
type Tick struct {
	Seq int `json:"seq"`
}

func (Tick) MessageType() string { return "TICK" }

func topicOf(number int) string { return "topic-" + strconv.Itoa(number%crowdTopics) }

// crowdRoutes adds the routes of the crowd.
func crowdRoutes(r *router.Router) {
	router.RPC(r, func(ctx *router.Context, m Join) (Joined, error) {
		return Joined(m), ctx.Subscribe(topicOf(m.Conn))
	})
	router.RPC(r, func(ctx *router.Context, m Block) (Blocked, error) {
		if m.Pad == "abort" {
			<-ctx.Done()
			return Blocked{}, ctx.Err()
		}
		time.Sleep(time.Duration(m.Seq%20) * time.Millisecond / 2)
		return Blocked(m), nil
	})
}

func crowdRound(t *testing.T, s *server, conns int, random *rand.Rand) {
	stop := publishTicks(s.router, max(5*time.Millisecond, time.Duration(conns)*200*time.Microsecond))
	var wg sync.WaitGroup
	var handshakes sync.WaitGroup
	handshakes.Add(conns)
	slots := make(chan struct{}, 64) // handshakes at the same time
	for i := range conns {
		c := &crowdClient{
			client: &client{
				random:   rand.New(rand.NewPCG(random.Uint64(), random.Uint64())),
				number:   i,
				network:  []int{overTCP, overTCP, overTCP, overTCP, overTLS, overUnix}[random.IntN(6)],
				behavior: []behavior{patient, patient, patient, halfClose, reset}[random.IntN(5)],
			},
			answers: map[string]int{},
		}
		wg.Go(func() {
			slots <- struct{}{}
			err := c.open(s)
			<-slots
			handshakes.Done()
			if err == nil {
				handshakes.Wait() // all connections are open at the same time
				err = c.talk()
			}
			if err != nil {
				t.Errorf("connection %d, network %d, behavior %d: %v", c.number, c.network, c.behavior, err)
			}
		})
	}
	wg.Wait()
	stop()
	s.requireEmpty(t)
	for i, r := range s.records {
		require.NoError(t, r.wrong)
		s.records[i] = &record{number: i, calls: map[int]int{}}
	}
}

// publishTicks publishes to all topics until stop is called.
func publishTicks(r *router.Router, pause time.Duration) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range crowdTopics {
		wg.Go(func() {
			for seq := 0; ; seq++ {
				_ = r.Publish(topicOf(i), Tick{seq}) // no broker can fail
				select {
				case <-done:
					return
				case <-time.After(pause):
				}
			}
		})
	}
	return func() { close(done); wg.Wait() }
}

// A crowdClient makes calls and counts their answers.
type crowdClient struct {
	*client

	mu      sync.Mutex
	answers map[string]int // by the ID of the call
	changed chan struct{}  // closed at the next answer; nil if nothing waits
	tick    int            // the publication that must be next; 0 before the first
}

func (c *crowdClient) open(s *server) error {
	if err := c.dial(s); err != nil {
		return err
	}
	_ = c.SetDeadline(time.Now().Add(5 * time.Minute))
	return c.handshake()
}

// talk sends messages, waits for all answers, and ends.
func (c *crowdClient) talk() error {
	defer func() { _ = c.Close() }()
	read := make(chan error, 1)
	go func() { read <- c.read() }()
	calls := map[string]bool{}
	var err error
	for range 5 + c.random.IntN(15) {
		if _, err = c.Write(c.burst(calls)); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		time.Sleep(time.Duration(c.random.IntN(50)) * time.Millisecond)
	}
	if err := c.await(calls, read); err != nil {
		return err
	}
	switch c.behavior {
	case reset:
		_ = c.reset()
		<-read //nolint:errcheck // the reset breaks the reader, too
		return nil
	case halfClose:
		if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
			err = half.CloseWrite()
		}
	default:
		_, err = c.Write(c.appendFrame(nil, 0x88, "\x03\xe8"))
	}
	if err != nil {
		return fmt.Errorf("end: %w", err)
	}
	if err := <-read; errors.Is(err, errMessage) {
		return err
	}
	if c.behavior == patient && c.code != 1000 {
		return fmt.Errorf("%w: close code %d", errMessage, c.code)
	}
	return nil
}

// burst encodes messages that are sent at once.
func (c *crowdClient) burst(calls map[string]bool) (b []byte) {
	call := func(kind, pad string) string {
		id := strconv.Itoa(len(calls))
		calls[id] = true
		b = c.appendMessage(b, fmt.Sprintf(`{"type":%q,"meta":{"correlationId":%q},"payload":{"conn":%d,"seq":%s,"pad":%q}}`,
			kind, id, c.number, id, pad))
		return id
	}
	if len(calls) == 0 {
		call("JOIN", "")
	}
	for range c.random.IntN(4) {
		switch c.random.IntN(8) {
		case 0:
			for range 100 + c.random.IntN(400) { // a flood
				b = c.appendFrame(b, 0x81, fmt.Sprintf(`{"type":"EVENT","payload":{"conn":%d,"seq":0}}`, c.number))
			}
		case 1:
			id := call("BLOCK", "abort")
			if c.random.IntN(2) == 0 {
				call("CALL", "between")
			}
			b = c.appendMessage(b, fmt.Sprintf(`{"type":"$ws:abort","meta":{"correlationId":%q}}`, id))
		case 2:
			call("BLOCK", "")
		case 3:
			call("SERIAL", strings.Repeat("s", c.random.IntN(5000)))
		default:
			call("CALL", strings.Repeat("c", c.random.IntN(300)))
		}
	}
	return b
}

// await waits until each call has its answer.
func (c *crowdClient) await(calls map[string]bool, read chan error) error {
	for {
		c.mu.Lock()
		answered := len(c.answers)
		changed := make(chan struct{})
		c.changed = changed
		c.mu.Unlock()
		if answered >= len(calls) {
			return nil
		}
		select {
		case <-changed:
		case err := <-read:
			read <- err
			return fmt.Errorf("%d of %d calls answered, close code %d: %w", answered, len(calls), c.code, err)
		}
	}
}

// read records answers until the end of the stream. Sometimes it reads slowly.
func (c *crowdClient) read() error {
	slow := c.number%10 == 0
	for n := 0; ; n++ {
		if slow && n%16 == 0 {
			time.Sleep(20 * time.Millisecond)
		}
		first, payload, err := c.readFrame()
		switch {
		case err != nil:
			return err
		case first == 0x88 && len(payload) >= 2:
			c.code = int(binary.BigEndian.Uint16(payload))
		case first == 0x81:
			if err := c.record(payload); err != nil {
				return err
			}
		case first != 0x89 && first != 0x8a:
			return fmt.Errorf("%w: frame %#x %q", errMessage, first, payload)
		}
	}
}

// record checks a message of the server.
func (c *crowdClient) record(message []byte) error {
	var m struct {
		Type string
		Meta struct {
			CorrelationID string
		}
		Payload struct {
			numbered
			Code string
		}
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return fmt.Errorf("%w: %w: %.200q", errMessage, err, message)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	id := m.Meta.CorrelationID
	switch m.Type {
	case "TICK":
		if c.tick > 0 && m.Payload.Seq != c.tick {
			return fmt.Errorf("%w: publication %d, want %d", errMessage, m.Payload.Seq, c.tick)
		}
		c.tick = m.Payload.Seq + 1
		return nil
	case "REPLY", "SERIAL_REPLY", "BLOCKED", "JOINED":
		if m.Payload.Conn != c.number || id != strconv.Itoa(m.Payload.Seq) || m.Payload.Pad == "abort" {
			return fmt.Errorf("%w: %.200q", errMessage, message)
		}
	case "RPC_ERROR":
		if m.Payload.Code != "CANCELLED" {
			return fmt.Errorf("%w: %.200q", errMessage, message)
		}
	default:
		return fmt.Errorf("%w: %.200q", errMessage, message)
	}
	if c.answers[id]++; c.answers[id] > 1 {
		return fmt.Errorf("%w: call %s has %d answers", errMessage, id, c.answers[id])
	}
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	return nil
}
