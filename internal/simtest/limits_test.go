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

// The messages of the routes behind limits. The type says what a message costs.
type (
	spendLittle struct {
		ID string `json:"id"`
	}
	spendMuch struct {
		ID string `json:"id"`
	}
	spendTooMuch struct { // more than a bucket ever holds
		ID string `json:"id"`
	}
	hold struct { // a call that keeps a permit for a time
		ID     string `json:"id"`
		Millis int    `json:"millis"`
	}
)

func (spendLittle) MessageType() string  { return "SPEND.LITTLE" }
func (spendMuch) MessageType() string    { return "SPEND.MUCH" }
func (spendTooMuch) MessageType() string { return "SPEND.TOOMUCH" }
func (hold) MessageType() string         { return "HOLD" }

// The numbers of the limits, which refuse often.
var (
	spendCosts = map[string][2]int64{ // from the bucket of the user, and from that of all users
		spendLittle{}.MessageType():  {1, 1},
		spendMuch{}.MessageType():    {3, 2},
		spendTooMuch{}.MessageType(): {100, 1},
	}
	userPolicies = []limit.Policy{limit.Per(1, 2*time.Second).Burst(4), limit.PerSecond(1).Burst(3), limit.Per(1, 6*time.Second).Burst(6)}
	allPolicies  = []limit.Policy{limit.PerSecond(1).Burst(4), limit.Per(1, 2*time.Second).Burst(6), limit.PerSecond(2).Burst(3)}
)

const (
	holdPermits = 2
	holdPolicy  = "hold"
)

// allKey is the bucket that all users share.
var allKey = limit.Key{"tenant", "all"}

// limitsRecord has the limiters, which all nodes share, and what was decided.
type limitsRecord struct {
	user, all *bucket
	permits   *memory.Semaphore
	distant   bool          // the limiters answer late or never, and their clock steps
	turn      chan struct{} // held by who decides, unless distant: so the order of the records is that of the decisions

	mu       sync.Mutex
	calls    []*call
	passed   map[string]bool     // IDs of handled messages
	admitted map[limit.Key]int64 // the tokens of messages that the limits have admitted
	used     map[limit.Key]int64 // the tokens of messages that were handled
	refused  map[refusal]int64   // as the routes have refused
	reported map[refusal]int64   // to OnLimitExceeded
	holding  map[string]int64    // handlers of each user that hold a permit
	waits    map[limit.Key]wait  // of the last refusal, while nothing else was decided
	changes  int                 // of policies
}

// A refusal identifies messages that a limit has refused.
type refusal struct{ conn, kind, policy string }

// A wait is the time that a refusal names.
type wait struct {
	kind    string
	until   time.Time
	changes int
}

// Calls pass a joint limit per user and for all, and a limit of concurrency. The limits change at run time.
func limitsFeature() feature {
	return feature{
		begin: newLimitsRecord,
		verbs: []verb{
			{name: "spend", weight: [3]int{8, 8, 12}, draw: func(d *draw, s *step) { d.client(s); s.N = d.IntN(24) }, run: (*world).spend},
			{name: "spendAgain", weight: [3]int{5, 4, 4}, draw: func(d *draw, s *step) { d.client(s); s.N = d.IntN(8) }, run: (*world).spendAgain},
			{name: "hold", weight: [3]int{3, 3, 4}, draw: func(d *draw, s *step) {
				d.client(s)
				s.N = 1 + d.IntN(4)
				s.For = d.span(4 * time.Second)
			}, run: (*world).hold},
			{name: "setPolicy", weight: [3]int{1, 1, 2}, draw: func(d *draw, s *step) { s.N = d.IntN(6) }, run: (*world).setPolicy},
			{name: "stepClock", weight: [3]int{0, 1, 1}, draw: func(d *draw, s *step) { s.N = d.IntN(2); s.For = d.span(2 * time.Second) }, run: (*world).stepClock},
		},
		routes: (*app).limitRoutes,
		check:  (*world).checkLimits,
	}
}

func newLimitsRecord(w *world) any {
	r := &limitsRecord{
		permits: memory.NewSemaphore(holdPermits), turn: make(chan struct{}, 1), distant: w.plan.Mood != calm && w.plan.Seed%2 == 0,
		passed: map[string]bool{}, admitted: map[limit.Key]int64{}, used: map[limit.Key]int64{},
		refused: map[refusal]int64{}, reported: map[refusal]int64{}, holding: map[string]int64{}, waits: map[limit.Key]wait{},
	}
	how := together
	switch {
	case r.distant:
		w.fault()
		how = faultily
	case w.plan.Seed%3 == 0:
		how = oneByOne
	}
	r.user = newBucket(w.plan.Seed, userPolicies[0].Named("spend.user"), how)
	r.all = newBucket(w.plan.Seed+1, allPolicies[0].Named("spend.all"), how)
	return r
}

func (a *app) limitRoutes() {
	w := a.world
	r := record[*limitsRecord](w)
	cost := func(i int) func(router.IngressContext) int64 {
		return func(in router.IngressContext) int64 { return spendCosts[in.Type][i] }
	}
	joint := ratelimit.NewAll([]ratelimit.Rule{
		{Limiter: r.user.limiter, Key: ratelimit.KeyPerUser, Cost: cost(0)},
		{Limiter: r.all.limiter, Key: func(router.IngressContext) limit.Key { return allKey }, Cost: cost(1)},
	}, nil)
	spends := a.Group()
	spends.UseIngress(r.observed(w, joint))
	router.RPC(spends, func(ctx *router.Context, m spendLittle) (worked, error) { return a.spent(ctx, m.ID) })
	router.RPC(spends, func(ctx *router.Context, m spendMuch) (worked, error) { return a.spent(ctx, m.ID) })
	router.RPC(spends, func(ctx *router.Context, m spendTooMuch) (worked, error) { return a.spent(ctx, m.ID) })
	permits := ratelimit.Concurrency(r.permits, &ratelimit.ConcurrencyOptions{
		Name: holdPolicy,
		Key:  func(in router.IngressContext) limit.Key { return limit.Key{"user", in.Identity.UserID} },
	})
	router.RPC(a, a.hold).Use(func(next router.Handler) router.Handler {
		limited := permits(next)
		return func(ctx *router.Context) error {
			err := limited(ctx)
			if e, ok := errors.AsType[*router.LimitExceeded](err); ok {
				r.refuses(ctx.Conn().ID(), e)
			}
			return err
		}
	})
}

// observed records what an ingress function decides.
func (r *limitsRecord) observed(w *world, f router.IngressFunc) router.IngressFunc {
	return func(ctx context.Context, in router.IngressContext) error {
		if !r.distant {
			r.turn <- struct{}{}
			defer func() { <-r.turn }()
		}
		err := f(ctx, in)
		r.mu.Lock()
		defer r.mu.Unlock()
		key := ratelimit.KeyPerUser(in)
		e, refused := errors.AsType[*router.LimitExceeded](err)
		if !r.distant {
			r.checkWait(w, key, in.Type, err, e)
		}
		switch {
		case err == nil:
			costs := spendCosts[in.Type]
			r.admitted[key] += costs[0]
			r.admitted[allKey] += costs[1]
			r.user.takes(key, costs[0])
			r.all.takes(allKey, costs[1])
		case refused:
			r.refused[refusal{in.ConnID, string(e.Kind), e.Policy}]++
		case !r.distant && ctx.Err() == nil:
			w.Errorf("a limit in memory cannot decide: %v", err)
		}
		return err
	}
}

// checkWait checks that a message is admitted after the time which its last refusal has named, and not before, if nothing else
// was admitted and no policy was changed meanwhile. The caller holds r.mu.
func (r *limitsRecord) checkWait(w *world, key limit.Key, kind string, err error, e *router.LimitExceeded) {
	now := time.Now()
	before, known := r.waits[key]
	known = known && before.kind == kind && before.changes == r.changes
	if err == nil {
		if known && before.until.Sub(now) > time.Millisecond {
			w.Errorf("%s of %s is admitted %v before the time that its refusal has named", kind, key[1], before.until.Sub(now))
		}
		clear(r.waits)
		return
	}
	if e == nil {
		return
	}
	if known && !now.Before(before.until) {
		w.Errorf("%s of %s is refused %v after the time that its refusal has named, and nothing else was admitted", kind, key[1], now.Sub(before.until))
	}
	if kind != (spendTooMuch{}).MessageType() {
		r.waits[key] = wait{kind, now.Add(e.RetryAfter), r.changes}
	}
}

func (r *limitsRecord) refuses(conn string, e *router.LimitExceeded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[refusal{conn, string(e.Kind), e.Policy}]++
}

// limitExceeded is called by Options.OnLimitExceeded.
func (w *world) limitExceeded(e router.LimitExceeded) {
	if e.Conn == nil {
		return
	}
	if e.Kind == router.LimitQueue {
		record[*slowRecord](w).dropped(e)
		return
	}
	r := record[*limitsRecord](w)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reported[refusal{e.Conn.ID(), string(e.Kind), e.Policy}] += e.Messages
}

func (a *app) spent(ctx *router.Context, id string) (worked, error) {
	a.executed(id)
	r := record[*limitsRecord](a.world)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed[id] = true
	r.used[ratelimit.KeyPerUser(ctx.Ingress())] += spendCosts[ctx.Type()][0]
	r.used[allKey] += spendCosts[ctx.Type()][1]
	return worked{id}, nil
}

func (a *app) hold(ctx *router.Context, m hold) (worked, error) {
	a.executed(m.ID)
	r, user := record[*limitsRecord](a.world), ctx.Identity().UserID
	r.mu.Lock()
	r.passed[m.ID] = true
	r.holding[user]++
	if n := r.holding[user]; n > holdPermits {
		a.world.Errorf("%d handlers of %s hold one of %d permits", n, user, holdPermits)
	}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.holding[user]--
	}()
	select {
	case <-time.After(time.Duration(m.Millis) * time.Millisecond):
		return worked{m.ID}, nil
	case <-ctx.Done():
		return worked{}, ctx.Err()
	}
}

// spend makes calls of a kind: N%4 of 0 to 2 selects a usual one, 3 all of them; N/4 is how many more follow at once.
func (w *world) spend(s step) {
	for i := range 1 + s.N/4 {
		w.spendOnce(s, (s.N+i)%4)
	}
}

// spendOnce makes a call, and returns nil if the client is off.
func (w *world) spendOnce(s step, kind int) *call {
	id := w.newID("e")
	switch kind {
	case 0:
		return w.limited(s, id, "spendMuch", spendMuch{id})
	case 1:
		return w.limited(s, id, "spendTooMuch", spendTooMuch{id})
	default:
		return w.limited(s, id, "spendLittle", spendLittle{id})
	}
}

// spendAgain repeats a call that is refused up to N times, each time after the time that the refusal names.
func (w *world) spendAgain(s step) {
	l := w.clients[s.Client].life()
	if l == nil {
		return
	}
	w.begin(func() {
		for range s.N {
			if l.ended() {
				return
			}
			id := w.newID("e")
			c := w.newLimited(s, id, "spendMuch")
			w.callLimited(l, c, spendMuch{id})
			e, ok := errors.AsType[*errors.Error](c.outcome)
			if !ok || e.Code != errors.ResourceExhausted {
				return
			}
			time.Sleep(e.RetryAfter)
		}
	})
}

func (w *world) hold(s step) {
	for range s.N {
		id := w.newID("h")
		w.limited(s, id, "hold", hold{id, int(s.For / time.Millisecond)})
	}
}

func (w *world) newLimited(s step, id, kind string) *call {
	c := &call{id: id, device: s.Client, kind: kind, begun: time.Now(), limit: 30 * time.Second}
	r := record[*limitsRecord](w)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
	return c
}

// limited makes a call in the background.
func (w *world) limited(s step, id, kind string, m router.Message) *call {
	l := w.clients[s.Client].life()
	if l == nil {
		return nil
	}
	c := w.newLimited(s, id, kind)
	w.begin(func() { w.callLimited(l, c, m) })
	return c
}

func (w *world) callLimited(l *life, c *call, m router.Message) {
	ctx, cancel := timeout(c.limit)
	defer cancel()
	reply, err := client.Call[worked](ctx, l.Client, m)
	if err == nil && reply.ID != c.id {
		w.Errorf("client %d: the call %s has the reply to %q", c.device, c.id, reply.ID)
	}
	w.endCall(c, err)
}

// setPolicy gives one of the limits another policy, on all nodes.
func (w *world) setPolicy(s step) {
	r := record[*limitsRecord](w)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	b, policy := r.user, userPolicies[s.N%3]
	if s.N >= 3 {
		b, policy = r.all, allPolicies[s.N%3]
	}
	if err := b.set(policy.Named(b.policies[0].Name)); err != nil {
		w.Errorf("SetPolicy failed: %v", err)
	}
}

// stepClock sets the clock of the limiters, forward or, with N = 1, back, if they have their own.
func (w *world) stepClock(s step) {
	r := record[*limitsRecord](w)
	if !r.distant {
		return
	}
	for _, b := range []*bucket{r.user, r.all} {
		b.limiter.(*limittest.FaultyLimiter).Step(s.For * time.Duration(1-2*s.N))
	}
}
