package runs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/runs"
	"github.com/penstock-go/penstock/internal/testscale"
)

// seeds returns how many schedules of a scenario there are.
func seeds() uint64 {
	return testscale.Tiers[uint64](2, 2, 60)
}

// An account is what one run has reserved.
type account struct {
	used int // -1 unless it is settled
}

// reserve takes the price of a run.
func (m *model) reserve(ctx context.Context) (json.RawMessage, error) {
	refused := m.intN(10) == 0
	m.mu.Lock()
	defer m.mu.Unlock()
	if refused {
		return nil, errors.Errorf(errors.ResourceExhausted, "the budget is exhausted")
	}
	m.accounts = append(m.accounts, &account{used: -1})
	raw, _ := json.Marshal(len(m.accounts) - 1)
	return raw, ctx.Err()
}

func (m *model) account(reservation json.RawMessage) *account {
	var i int
	if err := json.Unmarshal(reservation, &i); err != nil {
		panic(err)
	}
	return m.accounts[i]
}

func (m *model) giveBack(reservation json.RawMessage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.account(reservation); a.used < 0 {
		a.used = 0
	}
}

// settle is Config.Settle.
func (m *model) settle(_ context.Context, reservation json.RawMessage, items []any) error {
	return m.settleTokens(reservation, len(items))
}

// settleTokens settles an account, perhaps with an unknown outcome. As with a meter, the first time counts.
func (m *model) settleTokens(reservation json.RawMessage, used int) error {
	fault := m.intN(20)
	if fault == 0 {
		return errors.Errorf(errors.Unavailable, "the limiter cannot be reached")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.account(reservation); a.used < 0 {
		a.used = used
	}
	if fault == 1 {
		return errors.Errorf(errors.Unavailable, "the answer of the limiter is lost")
	}
	return nil
}

// checkItem requires that all readers see the same items.
func (m *model) checkItem(r *modelRun, n int, it item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case it.Run != r.id || it.N != n:
		m.problemLocked("a reader of run %s has an item of another place", r.id)
	case n < len(r.items):
		if r.items[n] != it && !m.mayDifferLocked(r) {
			m.problemLocked("two readers of run %s have different items", r.id)
		}
	case n == len(r.items):
		r.items = append(r.items, it)
	}
}

// mayDifferLocked reports whether readers may have seen what the log has lost: after a failover while the
// owner was dead or paused, or after the end.
func (m *model) mayDifferLocked(r *modelRun) bool {
	for _, at := range m.failedOver {
		if at.Before(r.started) {
			continue
		}
		if r.harmed || len(r.owners) > 1 || !r.returned.IsZero() && !at.Before(r.returned) {
			return true
		}
		for _, end := range r.ends {
			if !at.Before(end.At) || end.State == runs.Interrupted || end.State == runs.Stopped && m.isTakenOver(r) {
				return true
			}
		}
	}
	return false
}

// isTakenOver reports whether another node than the owner has written to the log of a run: after a failover that has brought back
// a lease which has expired, it ends the run before the owner can store the lease again.
func (m *model) isTakenOver(r *modelRun) bool {
	l := m.store.logs()[r.id]
	return l != nil && l.fence > r.fence
}

// checkEnd handles the end that a reader has reached, which has begun at some time.
func (m *model) checkEnd(r *modelRun, next uint64, end *runs.End, began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if began.Before(r.harmedAt) {
		began = r.harmedAt
	}
	if took := time.Since(began); m.faultless && m.kills && end.State == runs.Interrupted && took > lease+2*time.Second {
		m.problemLocked("a reader of run %s has waited %v for its end", r.id, took)
	}
	r.reading--
	m.readings++
	r.ends = append(r.ends, end)
	lost := slices.ContainsFunc(m.failedOver, func(at time.Time) bool { return !at.Before(r.returned) }) // perhaps its end
	if end.State == runs.Interrupted && m.faultless && !m.kills && !lost && !m.isReplacedLocked(r) {
		m.problemLocked("run %s is interrupted, though its owner lives: %s", r.id, m.describe(r.id))
	}
	if m.mayDifferLocked(r) {
		return
	}
	if next != end.Items {
		m.problemLocked("at %v, a reader of run %s has %d of %d items: %s", time.Since(simulationBegin), r.id, next, end.Items, m.describe(r.id))
	}
	if first := r.ends[0]; first.State != end.State || first.Items != end.Items {
		m.problemLocked("run %s has two ends: %+v, %+v", r.id, *first, *end)
	}
}

// checkForgotten handles that a run is unknown for longer than a failover explains.
func (m *model) checkForgotten(r *modelRun) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.reading--
	if !m.mayDifferLocked(r) && !m.isReplacedLocked(r) {
		m.problemLocked("at %v, run %s has been forgotten (started %v, failovers %v)%s", time.Since(simulationBegin), r.id, r.started, m.failedOver, m.describe(r.id))
	}
}

// isReplacedLocked reports whether another start may have had the lease after a failover: one that has begun after a
// failover that has lost this run, or one that a failover has lost before this run began.
func (m *model) isReplacedLocked(r *modelRun) bool {
	again := slices.ContainsFunc(m.failedOver, r.started.Before) // this run may have been lost after the other one
	for _, other := range m.claims {
		for _, at := range m.failedOver {
			late := other.returned.IsZero() || other.returned.After(at) || again && other.run != "" && at.Before(r.started)
			if other.topic == r.topic && other.run != r.id && late && r.started.Sub(at) < 4*lease {
				return true
			}
		}
	}
	return false
}

// finish ends all faults, waits for everything that goes on, and checks what is left.
func (m *model) finish() {
	m.store.mu.Lock()
	m.store.healthy, m.store.down = true, time.Time{}
	m.store.mu.Unlock()
	if m.await(5 * time.Minute) {
		m.checkStarts()
		m.checkRuns()
		m.checkLogs()
	} else {
		m.reportWaiting()
	}
	m.end()
}

// end ends all clients and nodes.
func (m *model) end() {
	m.mu.Lock()
	m.over = true
	m.mu.Unlock()
	for _, n := range m.all {
		n.kill()
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, n := range m.all {
		n.shutdown.Begin()
		n.shutdown.End(ended)
	}
	m.await(time.Minute)
	time.Sleep(time.Minute) // what has begun ends
}

// reportWaiting says what waits for ever.
func (m *model) reportWaiting() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problemLocked("something waits for ever")
	for _, r := range m.order {
		if r.reading > 0 {
			m.problemLocked("%d readers of run %s wait for ever", r.reading, r.id)
		}
	}
}

// checkRuns requires that a request begins one run, that a topic has one active run at a time, and that every
// run is settled by what its log has.
func (m *model) checkRuns() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.failedOver) > 0 {
		m.checkAccountsLocked()
		return
	}
	slices.SortFunc(m.order, func(a, b *modelRun) int { return a.started.Compare(b.started) })
	requests, latest := map[string]string{}, map[string]*modelRun{}
	for _, r := range m.order {
		if other := requests[r.request]; other != "" {
			m.problemLocked("the request %s has begun runs %s and %s", r.request, other, r.id)
		}
		requests[r.request] = r.id
		if len(r.ends) == 0 {
			m.problemLocked("run %s has no end", r.id)
			continue
		}
		if other := latest[r.topic]; other != nil && other.ends[0].At.After(r.started) {
			m.problemLocked("runs %s and %s of a topic are active at once", other.id, r.id)
		}
		latest[r.topic] = r
		if a := r.account; a.used != int(r.ends[0].Items) {
			m.problemLocked("run %s has %d items, and is settled by %d", r.id, r.ends[0].Items, a.used)
		}
	}
	m.checkAccountsLocked()
}

// checkAccountsLocked requires that what is reserved is used, refunded or kept.
func (m *model) checkAccountsLocked() {
	reserved, used, refunded, kept := 0, 0, 0, 0
	for _, a := range m.accounts {
		reserved += price
		switch {
		case a.used >= 0:
			used += a.used
			refunded += price - a.used
		default:
			kept += price
		}
	}
	if reserved != used+refunded+kept {
		m.problemLocked("%d tokens are reserved, %d used, %d refunded, %d kept", reserved, used, refunded, kept)
	}
	if kept > 0 && len(m.failedOver) == 0 && !m.kills && !m.pauses {
		m.problemLocked("%d tokens are kept, though no node has died or was paused, and the store has lost nothing", kept)
	}
}

// checkLogs requires that the logs in the store have at most one end, and nothing behind it, and that fences
// never fall.
func (m *model) checkLogs() {
	for id, l := range m.store.logs() {
		ended, fence := false, uint64(0)
		for _, p := range l.entries {
			var e struct {
				Fence uint64          `json:"f"`
				End   json.RawMessage `json:"end"`
			}
			if err := json.Unmarshal(p.Packet, &e); err != nil {
				panic(err)
			}
			switch {
			case ended && e.End != nil:
				m.problem("run %s has two ends in its log", id)
			case ended:
				m.problem("run %s has entries behind its end", id)
			case e.Fence < fence:
				m.problem("run %s has an entry of a former owner", id)
			}
			ended, fence = ended || e.End != nil, e.Fence
		}
	}
}

// checkStarts requires that nothing that is left blocks a topic for longer than a lease, and a run that goes on.
func (m *model) checkStarts() {
	longest := lease + 2*time.Second
	if m.resume {
		longest += maxItems * itemPause
	}
	for i := range topics {
		n := m.nodes[i%len(m.nodes)]
		claim := &runs.Claim{Topic: topicName(i), Produce: func(*runs.Owned, runs.Record) runs.Producer {
			return func(context.Context) error { return nil }
		}}
		_ = n.conn.await() // the node may be paused
		began := time.Now()
		for {
			_, begun, err := n.runs.Start(context.Background(), claim)
			if begun {
				break
			}
			if time.Since(began) > longest {
				m.problem("after the schedule, a start on %s still returns %v", claim.Topic, err)
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	time.Sleep(time.Second) // until they have ended
}

// describe returns the log of a run, for the report of a problem.
func (m *model) describe(id string) string {
	l := m.store.logs()[id]
	if l == nil {
		return "no log"
	}
	text := ""
	for _, p := range l.entries {
		var e struct {
			Fence uint64            `json:"f"`
			First int               `json:"n"`
			Items []json.RawMessage `json:"i"`
			Stop  json.RawMessage   `json:"stop"`
			End   *runs.End         `json:"end"`
		}
		if err := json.Unmarshal(p.Packet, &e); err != nil {
			panic(err)
		}
		text += fmt.Sprintf("\n%s/%d at %v: fence %d, items %d+%d", p.Position.Epoch, p.Position.Offset, p.At.Sub(simulationBegin), e.Fence, e.First, len(e.Items))
		if e.Stop != nil {
			text += ", stop"
		}
		if e.End != nil {
			text += fmt.Sprintf(", end %s %d", e.End.State, e.End.Items)
		}
	}
	return text
}

// simulationBegin is when time begins in a synctest bubble.
var simulationBegin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
