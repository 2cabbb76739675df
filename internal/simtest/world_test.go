package simtest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// A world is a simulation while it runs.
type world struct {
	*collector

	plan    plan
	cluster *routertest.Cluster
	clients []*simClient
	tasks   sync.WaitGroup // what steps have begun
	began   time.Time

	mu           sync.Mutex
	apps         []*app         // all that were started
	executions   map[string]int // by the ID of a message
	publications []*publication // in the order in which they began
	byID         map[string]*publication
	denied       map[string]bool // "user topic": may not read
	down         map[int]bool    // nodes that a step has ended
	faulty       bool            // a fault has occurred
	lastID       int
	records      []any // of the features
}

// record returns what a feature records.
func record[T any](w *world) T {
	for _, r := range w.records {
		if r, ok := r.(T); ok {
			return r
		}
	}
	panic(fmt.Sprintf("there is no record of the type %T", *new(T)))
}

// newNode starts the application of a node.
func (w *world) newNode(b broker.HistoryBroker) *app {
	a := newApp(w, b)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apps = append(w.apps, a)
	return a
}

// simulate runs a plan, and returns what was wrong.
func simulate(t *testing.T, p plan) (problems []string) {
	t.Helper()
	defer endIfHanging(p)()
	synctest.Test(t, func(t *testing.T) {
		defer random.Seed(p.Seed)()
		c := &collector{TB: t}
		c.run(func() { runWorld(c, p) })
		c.cleanUp()
		c.goroutines()
		problems = c.problems
	})
	return problems
}

func runWorld(c *collector, p plan) {
	w := &world{collector: c, plan: p, executions: map[string]int{}, byID: map[string]*publication{}, denied: map[string]bool{}, down: map[int]bool{}, began: time.Now()}
	for _, f := range features() {
		if f.begin != nil {
			w.records = append(w.records, f.begin(w))
		}
	}
	w.Cleanup(w.checkStoreEmpty)
	w.cluster = routertest.NewCluster(c, func(b broker.HistoryBroker) routertest.App { return w.newNode(b) }, &routertest.ClusterOptions{Nodes: p.Nodes, Seed: p.Seed, MayLose: w.mayLose})
	for i, cp := range p.Clients {
		w.clients = append(w.clients, newSimClient(w, i, cp))
	}
	record[*rawRecord](w).open(w)
	for _, s := range p.Steps {
		time.Sleep(s.Wait)
		w.step(s)
	}
	w.settle()
	for _, f := range features() {
		if f.check != nil {
			f.check(w)
		}
	}
	w.checkGone()
}

// step runs a step.
func (w *world) step(s step) {
	i := slices.IndexFunc(verbs(), func(v verb) bool { return v.name == s.Do })
	if i < 0 {
		w.Fatalf("there is no step %q", s.Do)
	}
	verbs()[i].run(w, s)
}

// settle ends all faults, and waits until everything that was begun has ended and all is quiet.
func (w *world) settle() {
	w.tasks.Wait()
	w.cluster.Heal()
	w.cluster.Wait(quietTime)
}

// quietTime is longer than every backoff, retry and idle check.
const quietTime = 5 * time.Minute

// begin runs a function of a step in the background.
func (w *world) begin(f func()) { w.tasks.Go(f) }

// newID returns an ID that was not used before.
func (w *world) newID(prefix string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastID++
	return fmt.Sprintf("%s%d", prefix, w.lastID)
}

// fault notes that a fault was injected: what only holds without one is not checked any more.
func (w *world) fault() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faulty = true
}

// calm reports whether no fault was injected.
func (w *world) calm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.faulty
}

// executed records that a handler runs, and reports false if its node was killed.
func (a *app) executed(id string) bool {
	a.world.mu.Lock()
	defer a.world.mu.Unlock()
	if a.killed {
		return false
	}
	a.world.executions[id]++
	return true
}

// app returns the application on a node, or nil if it is down.
func (w *world) app(node int) *app {
	a, _ := w.cluster.App(node).(*app)
	return a
}

// mayLose reports whether clients may miss more of a topic than its history has.
func (w *world) mayLose(topic string) bool { return family(topic+"/") == "short" || w.plan.Mood == hot }

// messagesLost is called by Options.OnMessagesLost.
func (w *world) messagesLost(a *app, topic string, n int) {
	if w.calm() && family(topic+"/") != "short" {
		w.Errorf("calm: %v reports %d lost messages of topic %q", a, n, topic)
	}
}

// serverError is called by Options.OnError.
func (w *world) serverError(a *app, e router.ErrorReport) {
	w.mu.Lock()
	killed := a.killed
	w.mu.Unlock()
	if strings.Contains(fmt.Sprint(e.Err), "panic") || w.calm() && !killed && !strings.Contains(e.Err.Error(), "context canceled") {
		w.Errorf("%v reports an error: %v", a, e.Err)
	}
}

// A collector is a testing.TB that collects failures, so that a simulation can be repeated with fewer steps.
type collector struct {
	testing.TB

	mu       sync.Mutex
	problems []string
	cleanups []func()
}

// errFatal ends a simulation.
type errFatal struct{}

// Errorf collects a failure.
func (c *collector) Errorf(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.problems) < maxProblems {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

const maxProblems = 20

// Fatalf collects a failure and ends the simulation.
func (c *collector) Fatalf(format string, args ...any) {
	c.Errorf(format, args...)
	panic(errFatal{})
}

// Cleanup runs f at the end of the simulation.
func (c *collector) Cleanup(f func()) { c.cleanups = append(c.cleanups, f) }

// Helper does nothing.
func (*collector) Helper() {}

func (c *collector) run(f func()) {
	defer func() {
		if v := recover(); v != nil {
			if _, ok := v.(errFatal); !ok {
				panic(v)
			}
		}
	}()
	f()
}

func (c *collector) cleanUp() {
	for _, f := range slices.Backward(c.cleanups) {
		c.run(f)
	}
}

// goroutines reports goroutines of the bubble that are left.
func (c *collector) goroutines() {
	time.Sleep(15 * time.Minute)
	synctest.Wait()
	buf := make([]byte, 1<<20)
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	_, bubble, _ := strings.Cut(strings.SplitN(stacks[0], "\n", 2)[0], "synctest bubble ")
	for _, stack := range stacks[1:] {
		head, _, _ := strings.Cut(stack, "\n")
		if _, of, ok := strings.Cut(head, "synctest bubble "); ok && of == bubble && !strings.Contains(stack, "testing/synctest.Test") {
			c.Errorf("a goroutine is left: %s", stack)
		}
	}
}

// timeout returns a context for a step.
func timeout(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}
