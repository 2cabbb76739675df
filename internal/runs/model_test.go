package runs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/internal/runs"
	"github.com/penstock-go/penstock/run/observe"
)

// This file runs the runs of several nodes on a simulated store, in virtual time, with a seed per schedule:
// producers start, emit and end, readers attach and move, others stop runs, while calls of the store are
// delayed, fail and take effect late, nodes are paused for longer than the lease and killed, and failovers
// bring back an older state. model_check_test.go has what must be true.

const (
	lease  = 3 * time.Second
	topics = 4
	price  = 100 // tokens that a run reserves

	maxItems  = 60                     // of a run
	itemPause = 150 * time.Millisecond // at most before each
)

// A scenario says what happens in a schedule beside faults of single calls.
type scenario struct {
	name      string
	mistake   mistake
	resume    bool // runs go on when their owner has died
	failovers bool
	kills     bool
	pauses    bool
	outages   bool
	faultless bool // calls neither fail nor wait
}

func scenarios() []scenario {
	return []scenario{
		{name: "calls fail"},
		{name: "nodes die", kills: true},
		{name: "nodes die, and calls do not fail", kills: true, faultless: true},
		{name: "nodes are paused", pauses: true},
		{name: "failovers", failovers: true},
		{name: "failovers, and calls do not fail", failovers: true, faultless: true},
		{name: "everything", failovers: true, kills: true, pauses: true, outages: true},
		{name: "runs go on", resume: true, kills: true, pauses: true, outages: true},
		{name: "runs go on after everything", resume: true, failovers: true, kills: true, pauses: true, outages: true},
	}
}

// A model is one schedule.
type model struct {
	scenario

	t     *testing.T
	store *simStore

	mu         sync.Mutex
	rng        *rand.Rand
	nodes      []*modelNode // that are alive
	all        []*modelNode
	known      map[string]*modelRun
	order      []*modelRun
	accounts   []*account
	failedOver []time.Time
	claims     []*claimed
	problems   []string
	readings   int // that have reached an end
	over       bool
	active     int // goroutines of clients
}

// A modelNode is a node.
type modelNode struct {
	conn     *simNode
	runs     *runs.Runs
	shutdown host.Shutdown
	ctx      context.Context //nolint:containedctx // of what its clients do
	kill     context.CancelFunc
	changed  func(runs.Record)
}

// A modelRun is a run, as the model knows it.
type modelRun struct {
	id, topic, request string
	fence              uint64
	total              int // items that the producer emits
	started            time.Time
	returned           time.Time // when a producer has returned for the first time
	owners             []*modelNode
	account            *account
	items              []item // as the first reader has seen them
	ends               []*runs.End
	harmedAt           time.Time
	harmed             bool // an owner was killed or paused
	reading            int  // readers that have not reached the end
}

// A claimed is a start of a topic, which may have had the lease.
type claimed struct {
	topic, run string    // "" without a run
	returned   time.Time // zero while it goes on
}

// An item is what a producer emits.
type item struct {
	Run string `json:"run"`
	N   int    `json:"n"`
	By  uint64 `json:"by"` // the fence of the owner
}

func newModel(t *testing.T, seed uint64, sc scenario) *model {
	m := &model{
		scenario: sc, t: t, store: newSimStore(seed, sc.mistake), rng: rand.New(rand.NewPCG(seed, 2)), known: map[string]*modelRun{},
	}
	m.store.healthy = sc.faultless
	for range 3 {
		m.addNode()
	}
	return m
}

// problem records that a property does not hold.
func (m *model) problem(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problemLocked(format, args...)
}

func (m *model) problemLocked(format string, args ...any) {
	m.problems = append(m.problems, fmt.Sprintf(format, args...))
}

// goDo runs f for a client.
func (m *model) goDo(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.goDoLocked(f)
}

func (m *model) goDoLocked(f func()) {
	m.active++
	go func() {
		f()
		m.mu.Lock()
		defer m.mu.Unlock()
		m.active--
	}()
}

// await waits until no client is active, and reports whether that is so in time.
func (m *model) await(d time.Duration) bool {
	for began := time.Now(); time.Since(began) < d; time.Sleep(time.Second) {
		m.mu.Lock()
		active := m.active
		m.mu.Unlock()
		if active == 0 {
			return true
		}
	}
	return false
}

func (m *model) isOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

func topicName(i int) string { return fmt.Sprint("topic", i) }

func (m *model) intN(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

func (m *model) upTo(d time.Duration) time.Duration { return time.Duration(m.intN(int(d))) }

// node returns a node that is alive.
func (m *model) node() *modelNode {
	i := m.intN(len(m.nodes)) // there is always the same number
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.nodes[i]
}

// addNode starts a node.
func (m *model) addNode() {
	n := &modelNode{changed: func(runs.Record) {}}
	m.mu.Lock()
	name := fmt.Sprint("node", len(m.all))
	m.mu.Unlock()
	n.conn = newSimNode(m.store, name)
	n.ctx, n.kill = context.WithCancel(context.Background())
	config := runs.Config{
		Host: host.Host{
			Node: name, Logger: slog.New(slog.DiscardHandler), Histories: n.conn, Follow: n.conn.follow, Unfollow: n.conn.unfollow,
			OnShutdown: func(s host.Shutdown) { n.shutdown = s },
		},
		Lease: lease, Flush: 20 * time.Millisecond, FlushBytes: 4 << 10, MaxItems: 1000, MaxBytes: 1 << 20,
		Duration: 30 * time.Second, Retain: 10 * time.Minute, Grace: time.Second,
		Settle:  m.settle,
		Changed: func(rec runs.Record) { n.changed(rec) }, Observe: func(observe.Event) {},
	}
	config.Decode = func(raw json.RawMessage) (any, error) {
		var it item
		err := json.Unmarshal(raw, &it)
		return it, err
	}
	if m.resume {
		config.Resume = func(o *runs.Owned, rec runs.Record, items []any) (runs.Producer, error) {
			m.mu.Lock()
			r := m.known[rec.ID]
			m.mu.Unlock()
			if r == nil { // its owner died before it began
				r = &modelRun{topic: rec.Topic, request: rec.RequestID, total: 1 + m.intN(maxItems)}
				r = m.add(r, &rec)
			}
			return m.produce(n, o, r, &rec, len(items)), nil
		}
	}
	n.runs = runs.New(config)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes = append(m.nodes, n)
	m.all = append(m.all, n)
}

// harm marks the runs of a node that is killed or paused.
func (m *model) harm(n *modelNode) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.order {
		for _, owner := range r.owners {
			if owner == n {
				r.harmed, r.harmedAt = true, time.Now()
			}
		}
	}
}

// killNode kills a node and starts another one.
func (m *model) killNode() {
	victim := m.node()
	m.harm(victim)
	m.mu.Lock()
	for i, n := range m.nodes {
		if n == victim {
			m.nodes = append(m.nodes[:i:i], m.nodes[i+1:]...)
		}
	}
	m.mu.Unlock()
	m.addNode()
	close(victim.conn.dead)
	victim.kill()
}

// start starts a run, and readers of it.
func (m *model) start(topic, request string) {
	n := m.node()
	r := &modelRun{topic: topic, request: request, total: 1 + m.intN(maxItems)}
	claim := &runs.Claim{Topic: topic, RequestID: request}
	claim.Reserve = func(ctx context.Context) (json.RawMessage, error) { return m.reserve(ctx) }
	claim.Return = func(_ context.Context, reservation json.RawMessage) { m.giveBack(reservation) }
	claim.Produce = func(o *runs.Owned, rec runs.Record) runs.Producer {
		return m.produce(n, o, m.add(r, &rec), &rec, 0)
	}
	ctx, cancel := context.WithTimeout(n.ctx, 20*time.Second)
	defer cancel()
	began := time.Now()
	c := &claimed{topic: topic}
	m.mu.Lock()
	m.claims = append(m.claims, c)
	m.mu.Unlock()
	rec, begun, err := n.runs.Start(ctx, claim)
	m.mu.Lock()
	if c.returned = time.Now(); begun {
		c.run = rec.ID
	}
	m.mu.Unlock()
	if took := time.Since(began); took > 40*time.Second { // a pause may precede the end of its context
		m.problem("a start took %v", took)
	}
	if begun && err != nil {
		m.problem("a start has begun a run and returned %v", err)
	}
}

// add adds a run that has begun, and starts readers of it. Another node may have gone on with it before.
func (m *model) add(r *modelRun, rec *runs.Record) *modelRun {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.known[rec.ID]; known != nil {
		return known
	}
	r.id, r.fence, r.started, r.account = rec.ID, rec.Fence, rec.StartedAt, m.account(rec.Reservation)
	m.known[r.id] = r
	m.order = append(m.order, r)
	for range 3 {
		m.goDoLocked(func() { m.read(r) })
	}
	return r
}

// produce returns what emits the items of a run from a number on.
func (m *model) produce(n *modelNode, o *runs.Owned, r *modelRun, rec *runs.Record, next int) runs.Producer {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.owners = append(r.owners, n)
	r.harmed = r.harmed || n.conn.isPaused() || n.conn.isDead()
	o.SetSettle(func(context.Context) error { return m.settleTokens(rec.Reservation, next) })
	return func(ctx context.Context) error {
		defer m.returned(r)
		for ; next < r.total; next++ {
			if err := rules.Sleep(ctx, m.upTo(itemPause)); err != nil {
				return context.Cause(ctx)
			}
			raw, _ := json.Marshal(item{r.id, next, rec.Fence})
			if err := o.Emit(raw); err != nil {
				return err
			}
		}
		if m.intN(5) == 0 {
			return errors.Errorf(errors.NotFound, "the producer has failed")
		}
		return nil
	}
}

// returned remembers when a producer has returned.
func (m *model) returned(r *modelRun) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.returned.IsZero() {
		r.returned = time.Now()
	}
}

// read reads a run on one node after the other until it ends.
func (m *model) read(r *modelRun) {
	m.mu.Lock()
	r.reading++
	m.mu.Unlock()
	time.Sleep(m.upTo(4 * time.Second))
	next, began := uint64(0), time.Now()
	missing := time.Time{} // since when the run is unknown
	for !m.isOver() {
		n := m.node()
		end, err := m.readOn(n, r, &next)
		switch {
		case end != nil:
			m.checkEnd(r, next, end, began)
			return
		case errors.CodeOf(err) == errors.NotFound && missing.IsZero():
			missing = time.Now()
		case errors.CodeOf(err) == errors.NotFound && time.Since(missing) > 2*lease:
			m.checkForgotten(r)
			return
		case errors.Is(err, errMoved):
			missing = time.Time{}
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// readOn reads a run on a node for a while.
func (m *model) readOn(n *modelNode, r *modelRun, next *uint64) (*runs.End, error) {
	ctx, cancel := context.WithTimeout(n.ctx, m.upTo(3*time.Second)+time.Millisecond)
	defer cancel()
	reader, err := n.runs.Attach(ctx, r.topic, r.id)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	for {
		items, end, err := reader.Next(ctx, *next)
		switch {
		case end != nil:
			return end, nil
		case err != nil:
			return nil, errMoved
		}
		for _, it := range items {
			it, _ := it.(item)
			m.checkItem(r, int(*next), it)
			*next++
		}
	}
}

var errMoved = errors.New("the reader has moved to another node")

// stop stops a run that is known.
func (m *model) stop() {
	m.mu.Lock()
	n := len(m.order)
	m.mu.Unlock()
	if n == 0 {
		return
	}
	i := max(0, n-1-m.intN(topics))
	m.mu.Lock()
	r := m.order[i]
	m.mu.Unlock()
	node := m.node()
	ctx, cancel := context.WithTimeout(node.ctx, time.Minute)
	defer cancel()
	rec, err := node.runs.Stop(ctx, r.topic, r.id, "ann")
	if err == nil && rec.End == nil {
		m.problem("a stop has returned before the end")
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // its attempts have deadlines of their own
		m.problem("a stop waits for ever: %v", err)
	}
}

// disturb injects a fault of the scenario.
func (m *model) disturb() {
	switch m.intN(4) {
	case 0:
		if m.kills {
			m.killNode()
		}
	case 1:
		if m.pauses {
			n := m.node()
			if !n.conn.isPaused() {
				m.harm(n)
				n.conn.pause(lease + m.upTo(4*time.Second))
			}
		}
	case 2:
		if m.failovers {
			m.mu.Lock()
			m.failedOver = append(m.failedOver, time.Now())
			m.mu.Unlock()
			m.store.failOver(m.intN(30))
		}
	case 3:
		if m.outages {
			d := m.upTo(5 * time.Second)
			m.store.mu.Lock()
			m.store.down = time.Now().Add(d)
			m.store.mu.Unlock()
		}
	}
}

// simulate runs a schedule, and returns the properties that do not hold.
func simulate(t *testing.T, seed uint64, sc scenario) (m *model) {
	synctest.Test(t, func(t *testing.T) {
		m = newModel(t, seed, sc)
		requests := 0
		until := time.Now().Add(40 * time.Second)
		for tick := 0; time.Now().Before(until); tick++ {
			time.Sleep(m.upTo(500 * time.Millisecond))
			switch choice := m.intN(10); {
			case choice < 4 && requests < 40:
				topic := topicName(m.intN(topics))
				if m.intN(3) > 0 {
					requests++
				}
				request := fmt.Sprintf("%s-%d", topic, requests)
				for range 1 + m.intN(3) {
					m.goDo(func() { m.start(topic, request) })
				}
			case choice < 6:
				m.goDo(m.stop)
			case choice < 7:
				m.disturb()
			}
		}
		m.finish()
	})
	return m
}

func TestModel_PropertiesHoldInEverySchedule(t *testing.T) {
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			for seed := range seeds() {
				m := simulate(t, seed, sc)
				assert.Empty(t, m.problems, "seed %d", seed)
				assert.Positive(t, m.readings)
			}
		})
	}
}

func TestModel_FindsMistakesOfTheStore(t *testing.T) {
	for mistake, sc := range map[mistake]scenario{
		noFence: {pauses: true, kills: true}, noEpoch: {failovers: true}, noLast: {pauses: true, kills: true},
	} {
		t.Run(string(mistake), func(t *testing.T) {
			sc.mistake = mistake
			for seed := range uint64(1000) {
				if m := simulate(t, seed, sc); len(m.problems) > 0 {
					t.Logf("seed %d: %s", seed, m.problems[0])
					return
				}
			}
			assert.Fail(t, "the model has not found the mistake")
		})
	}
}
