package simtest

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// generate is a call whose cost is known after its work.
type generate struct {
	ID       string `json:"id"`
	Estimate int64  `json:"estimate"`
	Used     int64  `json:"used"`
	Millis   int    `json:"millis"`
}

func (generate) MessageType() string { return "GENERATE" }

// The limits of the meter. The quota is that of a month, in which a simulation ends, so nothing of it returns.
const (
	meterLease  = time.Minute
	meterQuota  = 600
	meterBurst  = 400
	meterRefill = 2 * time.Second // of a token
	longestWork = 5 * time.Second
)

// meterKey is the key of all work.
var meterKey = limit.Key{"tenant", "meter"}

type meterRecord struct {
	meter   *limit.Meter
	bucket  limit.Limiter
	quota   limit.Limiter
	distant bool

	mu        sync.Mutex
	begun     time.Time // of the first reservation
	settled   int64     // tokens
	uncertain int64     // tokens of which every attempt to settle has failed
	calls     []*call
	granted   map[string]bool
	refused   map[string]bool
}

// Handlers reserve an estimate, work, and settle what they have used. Nodes are killed meanwhile.
func meterFeature() feature {
	return feature{
		begin: newMeterRecord,
		verbs: []verb{{name: "generate", weight: [3]int{6, 6, 7}, draw: func(d *draw, s *step) {
			d.client(s)
			s.N = 1 + d.IntN(2000)
			s.For = d.span(longestWork)
		}, run: (*world).generate}},
		routes: func(a *app) { router.RPC(a, a.generate) },
		check:  (*world).checkMeter,
	}
}

func newMeterRecord(w *world) any {
	r := &meterRecord{distant: w.plan.Mood != calm && w.plan.Seed%2 == 1, granted: map[string]bool{}, refused: map[string]bool{}}
	policy := limit.Per(1, meterRefill).Burst(meterBurst).Named("meter.bucket")
	quota := limit.QuotaPolicy{Name: "meter.quota", Max: meterQuota, Period: limit.Month}
	if r.distant {
		w.fault()
		r.bucket = faulty(w.plan.Seed, func(s *memory.Simulation) limit.Limiter { return s.NewLimiter(policy) })
		r.quota = faulty(w.plan.Seed+1, func(s *memory.Simulation) limit.Limiter { return s.NewQuota(quota) })
	} else {
		r.bucket, r.quota = memory.NewLimiter(policy), memory.NewQuota(quota)
	}
	r.meter = limit.NewMeter(meterLease, r.bucket, r.quota)
	return r
}

// faulty returns a limiter whose answers are late or lost.
func faulty(seed uint64, make func(*memory.Simulation) limit.Limiter) *limittest.FaultyLimiter {
	f := limittest.Faulty(seed, func(now func() time.Time) limit.Limiter { return make(memory.NewSimulation(now)) })
	f.SetFaults(limittest.Faults{MaxDelay: 5 * time.Millisecond, LostTakes: 1.0 / 32, LostAnswers: 1.0 / 32, LostAfter: time.Second})
	return f
}

// generate makes a call with an estimate of N/10 tokens, which uses N%10 fifths of it.
func (w *world) generate(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	r := record[*meterRecord](w)
	c := &call{id: w.newID("g"), device: s.Client, kind: "generate", begun: time.Now(), limit: 30 * time.Second}
	r.mu.Lock()
	r.calls = append(r.calls, c)
	r.mu.Unlock()
	estimate := int64(s.N / 10)
	m := generate{c.id, estimate, estimate * int64(s.N%10) / 5, int(s.For / time.Millisecond)}
	w.begin(func() {
		ctx, cancel := timeout(c.limit)
		defer cancel()
		_, err := client.Call[worked](ctx, l.Client, m)
		w.endCall(c, err)
	})
}

func (a *app) generate(ctx *router.Context, m generate) (worked, error) {
	w := a.world
	r := record[*meterRecord](w)
	if !a.executed(m.ID) {
		return worked{}, errors.Errorf(errors.Internal, "the node was killed")
	}
	r.mu.Lock()
	if r.begun.IsZero() {
		r.begun = time.Now()
	}
	r.mu.Unlock()
	d, err := r.meter.Reserve(ctx, m.Estimate, meterKey)
	if err != nil {
		return worked{}, err
	}
	if err := ratelimit.Exceeded(d, m.Estimate); err != nil {
		r.decides(m.ID, r.refused)
		if e, ok := errors.AsType[*router.LimitExceeded](err); ok {
			record[*limitsRecord](w).refuses(ctx.Conn().ID(), e)
		}
		return worked{}, err
	}
	r.decides(m.ID, r.granted)
	time.Sleep(time.Duration(m.Millis) * time.Millisecond)
	a.settle(r, d.Receipt, m.Used)
	return worked{m.ID}, nil
}

func (r *meterRecord) decides(id string, set map[string]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	set[id] = true
}

// settle settles what was used, unless the node was killed. It repeats that after an error: "Until the end of the lease, nothing
// is charged twice."
func (a *app) settle(r *meterRecord, receipt limit.Receipt, used int64) {
	a.world.mu.Lock()
	killed := a.killed
	a.world.mu.Unlock()
	if killed {
		return // the estimate returns at the end of its lease
	}
	for range 5 {
		err := r.meter.Settle(context.Background(), receipt, used, meterKey)
		r.mu.Lock()
		if err == nil {
			r.settled += used
		}
		r.mu.Unlock()
		if err == nil {
			return
		}
		if !r.distant {
			a.world.Errorf("a meter in memory cannot settle: %v", err)
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.uncertain += max(used, receipt.Tokens)
}

// checkMeter compares what is left with what was used. All leases have ended, and what returns at the end of one is no use.
func (w *world) checkMeter() {
	r := record[*meterRecord](w)
	if f, ok := r.bucket.(*limittest.FaultyLimiter); ok {
		f.SetFaults(limittest.Faults{})
		r.quota.(*limittest.FaultyLimiter).SetFaults(limittest.Faults{})
	}
	quota, err := limit.Inspect(context.Background(), r.quota, meterKey)
	if err != nil {
		w.Errorf("the quota cannot be read: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if left := meterQuota - quota.Remaining; quota.Remaining > 0 && (left < r.settled || left > r.settled+r.uncertain) {
		w.Errorf("work has used %d tokens (and perhaps %d more), and the quota has charged %d", r.settled, r.uncertain, left)
	}
	bucket, err := limit.Inspect(context.Background(), r.bucket, meterKey)
	if err != nil {
		w.Errorf("the bucket cannot be read: %v", err)
	}
	returned := int64(0)
	if !r.begun.IsZero() {
		returned = int64(time.Since(r.begun)/meterRefill) + 1
	}
	if missing := meterBurst - bucket.Remaining; missing > r.settled+r.uncertain+1 { // a part of a token is missing as a whole one
		w.Errorf("work has used %d tokens (and perhaps %d more), and the bucket is missing %d", r.settled, r.uncertain, missing)
	} else if missing < min(r.settled-returned, meterBurst) {
		w.Errorf("work has used %d tokens, of which %d may have returned, and the bucket is missing %d", r.settled, returned, missing)
	}
	for _, c := range r.calls {
		w.checkGenerated(r, c)
	}
}

func (w *world) checkGenerated(r *meterRecord, c *call) {
	code := errors.CodeOf(c.outcome)
	switch {
	case !c.done:
		w.Errorf("the metered call %s of client %d has no outcome", c.id, c.device)
	case r.granted[c.id] && r.refused[c.id] && !w.clients[c.device].Pacing: // which sends it again
		w.Errorf("the metered call %s of client %d was granted and refused", c.id, c.device)
	case c.outcome == nil && !r.granted[c.id]:
		w.Errorf("the metered call %s of client %d was answered, and its estimate was not granted", c.id, c.device)
	case code == errors.ResourceExhausted && r.granted[c.id]:
		w.Errorf("the metered call %s of client %d was refused, and its estimate was granted", c.id, c.device)
	}
}
