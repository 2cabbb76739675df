package clienttest_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

var faultSeed = flag.Uint64("faults.seed", 0, "of the faults and the work; 0: a random one")

// A faultCase is how the servers are configured.
type faultCase struct {
	name      string
	session   bool // the client resumes its session
	forgetful bool // the histories do not reach back over longer interruptions
	cbor      bool // the client uses CBOR
}

var faultCases = []faultCase{
	{"subscriptions", false, false, false},
	{"sessions", true, false, true},
	{"short histories", false, true, true},
	{"sessions with short histories", true, true, false},
}

func TestFaults_TypeScriptClient(t *testing.T) {
	buildNode(t)
	for _, f := range testscale.Sample(faultCases, 1) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			runFaults(t, startNode(t, 10), 10, f)
		})
	}
}

// leastRecovered is from how many interruptions a client must recover.
const leastRecovered = 6

// A workload is what a client does while the network fails.
type workload struct {
	t      *testing.T
	nodes  *nodes
	driver driver
	random *rand.Rand
	scale  int // how much faster the clock of the client runs

	forgetful bool

	ops  map[string]operation
	last int
}

type operation struct {
	what    string
	n       int
	started time.Time
	bounded bool // it may be canceled, or pass its deadline
}

func runFaults(t *testing.T, d driver, scale int, f faultCase) {
	seed := *faultSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-faults.seed %d", seed)
	n := startNodes(t, f)
	p := redistest.StartProxy(t, n.address)
	w := &workload{t: t, forgetful: f.forgetful, nodes: n, driver: d, scale: scale, random: rand.New(rand.NewPCG(seed, 2)), ops: map[string]operation{}}
	w.command("create", &command{}, clientOptions{URL: "ws://" + p.Addr + "/", TimeoutMs: 15_000 * scale, Session: f.session, CBOR: f.cbor})
	for i := range rooms {
		topic := fmt.Sprintf("room/%d", i)
		w.start("subscribe", &command{Topic: topic}, nil)
		d.Events().Wait(func(all []event) bool { return len(named(all, "settled")) > i }, time.Minute, d.Context().Done())
	}
	ctx, stop := context.WithCancel(t.Context())
	var background sync.WaitGroup
	for i := range rooms {
		background.Go(func() { n.publish(ctx, fmt.Sprintf("room/%d", i), seed+uint64(i)) })
	}
	background.Go(func() { n.call(ctx) })
	background.Go(func() { disturb(ctx, p, rand.New(rand.NewPCG(seed, 18))) })
	opened := w.work(leastRecovered)
	stop()
	background.Wait()
	w.finish()
	t.Logf("%d operations, %d connections, %d sessions resumed, %d events",
		len(w.ops), opened, n.resumed.Load(), len(d.Events().All()))
	if f.session {
		assert.Greater(t, int(n.resumed.Load()), leastRecovered/2, "sessions were resumed")
	}
	w.command("close", &command{ID: "close"}, nil)
	d.Events().Take(func(e event) bool { return e.ID == "close" }, time.Minute, d.Context().Done())
	w.check()
	assert.True(t, d.Stop(), "after close, nothing keeps the process alive")
}

// disturb stalls and cuts all connections, until ctx is done.
func disturb(ctx context.Context, p *redistest.Proxy, random *rand.Rand) {
	for ctx.Err() == nil {
		time.Sleep(time.Duration(50+random.IntN(400)) * time.Millisecond)
		switch random.IntN(4) {
		case 0:
			p.Stall()
		case 1:
			p.StallReplies()
		}
		time.Sleep(time.Duration(20+random.IntN(200)) * time.Millisecond)
		if random.IntN(3) > 0 {
			p.Cut() // in the middle of what has waited
		}
		p.Restore()
	}
}

func named(all []event, name string) (some []event) {
	for _, e := range all {
		if e.Name == name {
			some = append(some, e)
		}
	}
	return some
}

func (w *workload) command(do string, c *command, opts any) {
	c.Do = do
	if opts != nil {
		text, err := json.Marshal(opts)
		require.NoError(w.t, err)
		c.Opts = text
	}
	w.driver.Do(c)
}

// start begins an operation.
func (w *workload) start(do string, c *command, opts any) {
	w.last++
	c.ID = strconv.Itoa(w.last)
	_, bounded := opts.(callOptions)
	w.ops[c.ID] = operation{do, c.N, time.Now(), bounded}
	w.command(do, c, opts)
}

// work begins operations at random, until the client has recovered from enough interruptions of every kind. It returns the
// number of connections.
func (w *workload) work(least int) (opened int) {
	duration := testscale.Duration(500*time.Millisecond, 3*time.Second) // while the network fails
	end, limit := time.Now().Add(duration), time.Now().Add(duration+time.Minute)
	for {
		opened = 0
		all := w.driver.Events().All()
		for _, e := range named(all, "state") {
			if e.State == "open" {
				opened++
			}
		}
		if time.Now().After(end) && opened > least {
			return opened
		}
		require.True(w.t, time.Now().Before(limit), "the client has recovered only from %d interruptions", opened-1)
		if len(w.ops)-len(named(all, "settled")) > 500 { // the queue of a client is full at 1,000
			time.Sleep(10 * time.Millisecond)
			continue
		}
		for range 10 {
			w.one()
			time.Sleep(time.Duration(w.random.IntN(4)) * time.Millisecond)
		}
	}
}

func (w *workload) one() {
	number := w.last + 1
	switch w.random.IntN(10) {
	case 0:
		w.start("consume", &command{N: w.random.IntN(200)}, nil)
	case 1, 2:
		w.start("send", &command{N: number}, nil)
	case 3:
		w.start("call", &command{N: number}, callOptions{TimeoutMs: (1 + w.random.IntN(50)) * w.scale})
	default:
		w.start("call", &command{N: number}, nil)
	}
}

// finish waits until everything has settled, and the last publications have arrived.
func (w *workload) finish() {
	ctx, cancel := context.WithCancel(w.t.Context())
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	if w.forgetful { // the last publications may be lost
		background.Go(func() { w.nodes.publishAgain(ctx) })
	}
	w.driver.Events().Wait(func(all []event) bool {
		settled, last := 0, map[string]int{}
		for _, e := range all {
			switch e.Name {
			case "settled":
				settled++
			case "message":
				last[e.Topic] = e.N
			}
		}
		w.nodes.mu.Lock()
		defer w.nodes.mu.Unlock()
		for topic, n := range w.nodes.published {
			if last[topic] != n {
				return false
			}
		}
		return settled >= len(w.ops)
	}, 30*time.Second, w.driver.Context().Done())
}

// check compares what the client has reported with the ledger of the servers.
func (w *workload) check() {
	all := w.driver.Events().All()
	w.checkPublications(all)
	w.checkServed(all)
	var interruptions []time.Time
	for _, e := range named(all, "state") {
		if e.State != "open" {
			interruptions = append(interruptions, e.At)
		}
	}
	settled := map[string][]event{}
	for _, e := range named(all, "settled") {
		settled[e.ID] = append(settled[e.ID], e)
	}
	items := map[string][]int{}
	for _, e := range named(all, "item") {
		items[e.ID] = append(items[e.ID], e.N)
	}
	w.nodes.mu.Lock()
	defer w.nodes.mu.Unlock()
	outcomes := map[string]int{}
	for id, op := range w.ops {
		if !assert.Len(w.t, settled[id], 1, "%s %d settles exactly once", op.what, op.n) {
			continue
		}
		e := settled[id][0]
		outcomes[op.what+" "+e.Code]++
		if e.Unknown {
			assert.True(w.t, anyWithin(interruptions, op.started, e.At.Add(5*time.Second)), "%s %d: an outcome is unknown only after an interruption", op.what, op.n)
		}
		if op.what == "call" {
			w.checkCall(op, e)
		}
		if op.what == "consume" {
			w.checkStream(op, e, items[id])
		}
	}
	seen := map[int]bool{}
	for _, n := range w.nodes.events {
		assert.False(w.t, seen[n], "event %d was handled twice", n)
		seen[n] = true
	}
	w.t.Logf("outcomes: %v", outcomes)
}

func anyWithin(times []time.Time, from, to time.Time) bool {
	for _, at := range times {
		if at.After(from.Add(-time.Second)) && at.Before(to) {
			return true
		}
	}
	return false
}

func (w *workload) checkCall(op operation, e event) {
	executed := w.nodes.executed[op.n]
	switch e.Code {
	case "":
		assert.Equal(w.t, op.n, e.N, "the reply is that of the call")
		assert.Equal(w.t, 1, executed, "call %d has a reply", op.n)
	case "FAILED_PRECONDITION":
		assert.Zero(w.t, op.n%10)
	case "ABORTED":
		assert.True(w.t, e.Unknown)
	case "DEADLINE_EXCEEDED", "CANCELLED":
		assert.True(w.t, op.bounded, "call %d has failed with %s", op.n, e.Code)
	default:
		assert.Fail(w.t, "unexpected", "call %d has failed with %+v", op.n, e)
	}
	assert.LessOrEqual(w.t, executed, 1, "call %d was executed twice", op.n)
}

func (w *workload) checkStream(op operation, e event, items []int) {
	for i, n := range items {
		assert.Equal(w.t, i, n, "item %d of a stream of %d", i, op.n)
	}
	if e.Code == "" {
		assert.Len(w.t, items, op.n, "a stream that has ended has all items")
		return
	}
	assert.True(w.t, e.Unknown, "stream: %+v", e)
}

// checkPublications checks that each publication was handled once, in order: the histories hold all of them.
func (w *workload) checkPublications(all []event) {
	next, offsets, behindLoss, lost := map[string]int{}, map[string]uint64{}, map[string]bool{}, 0
	for _, e := range all {
		if e.Name == "loss" {
			assert.True(w.t, w.forgetful, "%+v", e)
			lost++
			behindLoss[e.Topic] = true
		}
		if e.Name != "message" || e.Topic == "" {
			continue
		}
		if behindLoss[e.Topic] {
			assert.Greater(w.t, e.N, next[e.Topic], "publication of %s", e.Topic)
			next[e.Topic], offsets[e.Topic], behindLoss[e.Topic] = e.N-1, 0, false
		}
		next[e.Topic]++
		if !assert.Equal(w.t, next[e.Topic], e.N, "publication of %s", e.Topic) {
			return
		}
		if offsets[e.Topic] > 0 {
			assert.Equal(w.t, offsets[e.Topic]+1, e.Offset, "offset of %s", e.Topic)
		}
		offsets[e.Topic] = e.Offset
	}
	w.nodes.mu.Lock()
	defer w.nodes.mu.Unlock()
	assert.Len(w.t, w.nodes.published, rooms)
	w.t.Logf("%d losses, %v published", lost, w.nodes.published)
	for topic, n := range w.nodes.published {
		assert.Positive(w.t, n)
		if w.forgetful {
			continue
		}
		assert.Equal(w.t, n, next[topic], "the last publication of %s was handled", topic)
	}
}

// checkServed checks that each call of the server was handled at most once, and exactly once if it has a reply.
func (w *workload) checkServed(all []event) {
	handled := map[int]int{}
	for _, e := range named(all, "served") {
		handled[e.N]++
		assert.Equal(w.t, 1, handled[e.N], "call %d of the server", e.N)
	}
	w.nodes.mu.Lock()
	defer w.nodes.mu.Unlock()
	replies := 0
	for number, code := range w.nodes.confirmed {
		switch code {
		case "":
			replies++
			assert.Equal(w.t, 1, handled[number], "call %d of the server has a reply", number)
		case "UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "ABORTED":
		default:
			assert.Fail(w.t, "unexpected", "call %d of the server has failed with %s", number, code)
		}
	}
	assert.Positive(w.t, replies)
}
