package runs

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

const testLease = 30 * time.Second

// A testOwner is an owner without anything that does what it says.
type testOwner struct {
	ownerState

	now     time.Time
	effects []string
}

// newTestOwner returns an owner that is claiming.
func newTestOwner() *testOwner {
	now := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	config := &Config{Lease: testLease, Flush: 20 * time.Millisecond, FlushBytes: 100}
	return &testOwner{ownerState: ownerState{config: config, working: true, renewal: now.Add(testLease / 3)}, now: now}
}

// do notes what is done after an event with a cause.
func (o *testOwner) do(cause error) {
	if cause != nil {
		o.effects = append(o.effects, "cancel")
	}
	t, _ := o.next(o.now)
	if work, _ := o.schedule(o.now); work {
		o.effects = append(o.effects, [...]string{"", "compare", "append", "give up", "finish", "leave"}[t])
	}
	if o.renew(o.now) {
		o.effects = append(o.effects, "renew")
	}
}

// endTask is for events that the goroutine reports, which then asks for the next task.
func (o *testOwner) endTask() { o.working = o.phase == claiming }

// endRenewal ends an attempt to renew the lease, which expires after a time.
func (o *testOwner) endRenewal(expires time.Duration, err error) error {
	o.renewing, o.renewal = true, time.Time{}
	cause := o.renewed(o.now, o.now.Add(expires), err)
	if err == nil && o.restore() {
		o.effects = append(o.effects, "restore")
	}
	return cause
}

// reach brings an owner that is claiming into a phase, in which nothing is to be done, except what its goroutine does.
var reach = map[string]func(*testOwner){
	"claiming":  func(*testOwner) {},
	"producing": func(o *testOwner) { o.happen("begin", "renewed") },
	"canceled":  func(o *testOwner) { o.happen("begin", "renewed", "canceled") },
	"ending":    func(o *testOwner) { o.happen("begin", "renewed", "returned") },
	"closing":   func(o *testOwner) { o.happen("begin", "renewed", "returned", "appended") },
	"ended":     func(o *testOwner) { o.happen("begin", "renewed", "returned", "appended", "stored") },
	"lost":      func(o *testOwner) { o.happen("begin", "renewed", "taken over") },
	"left":      func(o *testOwner) { o.happen("abandoned") },
}

var (
	errAway    = errors.Errorf(errors.Unavailable, "the store is away")
	errRefusal = errors.Errorf(errors.InvalidArgument, "the packet is too large")
	aRequest   = &stopRequest{By: "ann"}
)

// events are those of the table in doc.go, and others that have no effect.
var events = map[string]func(*testOwner) (cause error){
	"begin":    func(o *testOwner) error { return o.begin(o.now) },
	"item":     func(o *testOwner) error { o.emit(json.RawMessage(`1`)); return nil },
	"canceled": func(o *testOwner) error { return o.cancel(o.now) },
	"a second": func(o *testOwner) error { o.now = o.now.Add(time.Second); return nil },
	"returned": func(o *testOwner) error { o.returned(End{State: Completed}); return nil },
	"appended": func(o *testOwner) error { o.endTask(); o.appended(&entry{End: o.end}, 0, "epoch"); return nil },
	"refused":  func(o *testOwner) error { o.endTask(); o.behind, o.refusal = true, errRefusal; return nil },
	"compared": func(o *testOwner) error { o.endTask(); return o.compared(0, "epoch") },
	"not explained": func(o *testOwner) error {
		o.endTask()
		o.refusal = errRefusal
		return o.compared(0, o.epoch)
	},
	"stored":      func(o *testOwner) error { o.endTask(); return o.finished(o.now) },
	"stop in log": func(o *testOwner) error { return o.hear(o.now, aRequest, nil) },
	"end in log":  func(o *testOwner) error { return o.hear(o.now, aRequest, &End{State: Interrupted}) },
	"taken over":  func(o *testOwner) error { return o.endRenewal(testLease, errLost) },
	"failover":    func(o *testOwner) error { return o.failOver(o.now) },
	"lease due":   func(o *testOwner) error { o.renewal = o.now; return nil },
	"renewed":     func(o *testOwner) error { return o.endRenewal(testLease, nil) },
	"record lost": func(o *testOwner) error { o.outdated = true; return o.endRenewal(testLease, nil) },
	"not renewed": func(o *testOwner) error { return o.endRenewal(time.Second, errAway) },
	"expired":     func(o *testOwner) error { return o.endRenewal(0, errAway) },
	"abandoned":   func(o *testOwner) error { o.phase = left; return nil },
}

// possible has the phases in which some events can happen.
var possible = map[string]string{
	"begin": "claiming", "abandoned": "claiming", "item": "producing", "returned": "producing canceled ending closing ended lost",
	"appended": "producing canceled ending", "refused": "producing canceled ending", "compared": "producing canceled ending",
	"not explained": "producing canceled ending",
	"stored":        "closing",
}

// happen lets events happen, and returns what is done then.
func (o *testOwner) happen(all ...string) string {
	for _, event := range all {
		o.effects = nil
		o.do(events[event](o))
	}
	slices.Sort(o.effects)
	return strings.Join(o.effects, " ")
}

func (o *testOwner) name() string {
	return [...]string{"claiming", "producing", "canceled", "ending", "closing", "ended", "lost", "left"}[o.phase]
}

// A cell is what an event does in a phase.
type cell struct{ next, effects string }

// readTable returns the table in doc.go, by event and phase.
func readTable(t *testing.T) map[[2]string]cell {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	table := map[[2]string]cell{}
	rows := regexp.MustCompile(`(?m)^//\t(\S.{13}) (\S.{41}) (\S+) *(.*)$`).FindAllStringSubmatch(string(text), -1)
	for _, row := range rows[2:] {
		for phase := range strings.FieldsSeq(row[2]) {
			key := [2]string{strings.TrimSpace(row[1]), phase}
			assert.NotContains(t, table, key)
			assert.NotNil(t, events[key[0]], key[0])
			assert.NotNil(t, reach[key[1]], key[1])
			next := row[3]
			if next == "(same)" {
				next = phase
			}
			table[key] = cell{next, strings.TrimSpace(row[4])}
		}
	}
	return table
}

// TestOwner_EveryEventInEveryPhase compares ownerState with the table in the documentation of the package.
func TestOwner_EveryEventInEveryPhase(t *testing.T) {
	table := readTable(t)
	require.Len(t, table, 51)
	for phase, build := range reach {
		for event := range events {
			want, ok := table[[2]string{event, phase}]
			if phases, ok := possible[event]; ok && !slices.Contains(strings.Fields(phases), phase) {
				assert.NotContains(t, table, [2]string{event, phase}, "%s in phase %s cannot happen", event, phase)
				continue
			}
			if !ok {
				want.next = phase
			}
			o := newTestOwner()
			build(o)
			require.Equal(t, phase, o.name())
			got := cell{effects: o.happen(event)}
			got.next = o.name()
			assert.Equal(t, want, got, "%s in phase %s", event, phase)
		}
	}
}

// TestOwner_ItemsWaitForOthers appends the first item at once, and others after Config.Flush, unless they are many, or Flush
// was called, or the producer has returned.
func TestOwner_ItemsWaitForOthers(t *testing.T) {
	for name, hurry := range map[string]func(*testOwner){
		"time passes":  func(o *testOwner) { o.now = o.now.Add(20 * time.Millisecond) },
		"many bytes":   func(o *testOwner) { o.emit(json.RawMessage(strings.Repeat("1", 100))) },
		"flush":        func(o *testOwner) { o.flushed = len(o.items) },
		"has returned": func(o *testOwner) { o.returned(End{State: Completed}) },
	} {
		o := newTestOwner()
		reach["producing"](o)
		require.Equal(t, "append", o.happen("item"))
		_, e := o.take(o.now)
		require.Len(t, e.Items, 1)
		o.endTask()
		o.appended(e, 1, "epoch")
		require.Empty(t, o.happen("item", "item"), name)
		_, again := o.schedule(o.now)
		assert.Equal(t, 20*time.Millisecond, again.Sub(o.now))
		hurry(o)
		work, _ := o.schedule(o.now)
		assert.True(t, work, name)
		_, e = o.take(o.now)
		assert.GreaterOrEqual(t, len(e.Items), 2, name)
		assert.EqualValues(t, 1, e.First, name)
	}
}

// TestOwner_FailoverWhileTheLeaseIsRenewed renews it once more, after the attempt that may have come before the failover.
func TestOwner_FailoverWhileTheLeaseIsRenewed(t *testing.T) {
	o := newTestOwner()
	reach["producing"](o)
	require.Equal(t, "renew", o.happen("lease due"))
	require.Equal(t, "compare", o.happen("failover"))
	_, again := o.schedule(o.now)
	assert.Zero(t, again, "nothing is due while the lease is renewed")
	require.NoError(t, o.renewed(o.now, o.now.Add(testLease), nil))
	assert.True(t, o.renew(o.now))
}

// TestOwner_EntriesAreBounded appends what fits into an entry, and an item that is too large alone.
func TestOwner_EntriesAreBounded(t *testing.T) {
	o := newTestOwner()
	reach["producing"](o)
	for _, size := range []int{maxBatch / 2, maxBatch / 2, 1, 2 * maxBatch, 1} {
		o.emit(make(json.RawMessage, size))
	}
	var lengths []int
	for task, e := o.take(o.now); task != noTask; task, e = o.take(o.now) {
		size := 0
		for _, item := range e.Items {
			size += len(item)
		}
		o.appended(e, size, "epoch")
		o.flushed = len(o.items)
		lengths = append(lengths, len(e.Items))
	}
	assert.Equal(t, []int{2, 1, 1, 1}, lengths)
	assert.Zero(t, o.pending)
}

// TestOwner_RefusalIsPermanentIfTheLogIsAsItWas appends again if the log explains why an entry was refused.
func TestOwner_RefusalIsPermanentIfTheLogIsAsItWas(t *testing.T) {
	for name, c := range map[string]struct {
		count uint64
		epoch string
		left  int // items
	}{
		"the log has lost an item":        {0, "epoch", 3},
		"an attempt was stored after all": {2, "epoch", 3},
		"there was a failover":            {1, "later", 3},
		"nothing has changed":             {1, "epoch", 1},
	} {
		o := newTestOwner()
		reach["producing"](o)
		o.happen("item", "item", "item")
		o.appended(&entry{Items: o.items[:1]}, 1, "epoch")
		o.happen("returned", "refused")
		task, _ := o.take(o.now)
		require.Equal(t, compareLog, task)
		cause := o.compared(c.count, c.epoch)
		task, e := o.take(o.now)
		require.Equal(t, appendEntry, task, name)
		assert.Len(t, o.items, c.left, name)
		if c.left == 3 {
			require.NoError(t, cause, name)
			assert.Equal(t, c.count, e.First, name)
			assert.Equal(t, Completed, o.end.State, name)
			continue
		}
		require.ErrorIs(t, cause, errRefusal)
		require.NotNil(t, e.End, "the end follows the items that the log has")
		assert.Equal(t, Failed, e.End.State)
		assert.EqualValues(t, 1, e.End.Items)
		assert.Equal(t, errors.InvalidArgument, e.End.Error.Code)
		assert.Equal(t, "the run cannot be stored", e.End.Error.Message, "what the store says is for the operator")
	}
}
