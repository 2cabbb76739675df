package limittest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/mode"
)

// A FaultyLimiter is a limiter as a distant store is one in bad times, for tests in a testing/synctest
// bubble. Its answers come late and in any order, some of them are lost, and the clock of its store
// steps forward. It records what was truly decided, to compare it with a model. It is safe for
// concurrent use.
//
// It calls the limiter behind it for each Take that arrives, and for nothing else, so it is no
// [adapter.InProcess], no [adapter.Batcher] and no [adapter.Rememberer].
type FaultyLimiter struct {
	limiter limit.Limiter

	mu      sync.Mutex
	rng     *rand.Rand
	faults  Faults
	stepped time.Duration // by which the clock differs from that of the bubble
	happens FaultCounts
	latest  int // number of the last Take by its call that is decided
	decided map[limit.Key][]Decided
}

// Faults says how often what happens. Probabilities are from 0 to 1. The zero Faults decide at once.
type Faults struct {
	// MaxDelay bounds the delay of a Take before it is decided, and that of its answer. Each is drawn
	// from 0 to MaxDelay, and one in eight from 0 to ten times as much, so that a Take may pass
	// others in both directions.
	MaxDelay time.Duration

	LostTakes   float64       // Takes that do not arrive: an error, and nothing is decided
	LostAnswers float64       // answers that do not arrive: an error, although it is decided
	LostAfter   time.Duration // until the error of what is lost

	Steps   float64       // steps of the clock forward, before a Take is decided
	MaxStep time.Duration // at least a nanosecond if there are Steps
}

// FaultCounts counts what has happened.
type FaultCounts struct {
	Takes, LostTakes, LostAnswers, Steps int

	// Overtaken counts Takes that were decided before one that was called earlier.
	Overtaken int
}

// Decided is a Take that a FaultyLimiter has decided.
type Decided struct {
	Take     limit.Take
	Decision limit.Decision
	At       time.Time // on the clock of the store
	Lost     bool      // the caller got an error instead of the Decision
}

// errLost is the error of a Take that is lost, or whose answer is.
var errLost = errors.New("limittest: the answer is lost")

// Faulty returns a limiter with the delays and losses of a store behind a bad network: delays of up to
// 5 ms, 50 ms in one of eight cases, one Take and one answer in 32 is lost, which is an error after a
// second, and the clock makes a step of up to a second in one of 64 cases. newLimiter returns the
// limiter behind it, which reads the time from now and describes itself, as those of package memory:
//
//	limittest.Faulty(seed, func(now func() time.Time) limit.Limiter {
//		return memory.NewSimulation(now).NewLimiter(policy)
//	})
//
// The same seed and the same calls have the same faults, as far as the scheduler of Go permits.
func Faulty(seed uint64, newLimiter func(now func() time.Time) limit.Limiter) *FaultyLimiter {
	l := &FaultyLimiter{
		rng: rand.New(rand.NewPCG(seed, 50)),
		faults: Faults{
			MaxDelay: 5 * time.Millisecond, LostTakes: 1.0 / 32, LostAnswers: 1.0 / 32, LostAfter: time.Second,
			Steps: 1.0 / 64, MaxStep: time.Second,
		},
		decided: map[limit.Key][]Decided{},
	}
	l.limiter = newLimiter(l.Now)
	return l
}

// SetFaults replaces the faults from the next Take on.
func (l *FaultyLimiter) SetFaults(f Faults) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = f
}

// Now returns the time of the store: that of the bubble, and the steps.
func (l *FaultyLimiter) Now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Add(l.stepped)
}

// Step makes the clock of the store step by d, which is negative for a step backwards.
func (l *FaultyLimiter) Step(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stepped += d
	l.happens.Steps++
}

// Take is that of the limiter behind, with faults. It returns an error when ctx is done; whether the
// Take is decided then, only Decided says.
func (l *FaultyLimiter) Take(ctx context.Context, key limit.Key, take limit.Take) (limit.Decision, error) {
	p := l.plan()
	if err := rules.Sleep(ctx, p.before); err != nil {
		return limit.Decision{}, err
	}
	if p.losesTake {
		return limit.Decision{}, errors.Join(errLost, rules.Sleep(ctx, p.lostAfter))
	}
	if p.step > 0 {
		l.Step(p.step)
	}
	d, err := l.decide(ctx, key, take, &p)
	if err != nil {
		return limit.Decision{}, err
	}
	if p.losesAnswer {
		return limit.Decision{}, errors.Join(errLost, rules.Sleep(ctx, p.lostAfter))
	}
	if err := rules.Sleep(ctx, p.after); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.decided[key][p.index].Lost = true
		return limit.Decision{}, err
	}
	return d, nil
}

// A faultyPlan says what happens to a Take.
type faultyPlan struct {
	number                         int // of the Take, in the order of the calls
	before, after, step, lostAfter time.Duration
	losesTake, losesAnswer         bool
	index                          int // of its Decided
}

func (l *FaultyLimiter) plan() faultyPlan {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &l.faults
	p := faultyPlan{number: l.happens.Takes, before: l.delay(f.MaxDelay), after: l.delay(f.MaxDelay), lostAfter: f.LostAfter}
	l.happens.Takes++
	switch at := l.rng.Float64(); {
	case at < f.LostTakes:
		p.losesTake = true
		l.happens.LostTakes++
	case at < f.LostTakes+f.LostAnswers:
		p.losesAnswer = true
		l.happens.LostAnswers++
	}
	if l.rng.Float64() < f.Steps {
		p.step = time.Duration(1 + l.rng.Int64N(int64(f.MaxStep)))
	}
	return p
}

func (l *FaultyLimiter) delay(most time.Duration) time.Duration {
	if l.rng.IntN(8) == 0 {
		most *= 10
	}
	return time.Duration(l.rng.Int64N(int64(most) + 1))
}

// decide asks the limiter behind and records what it decides.
func (l *FaultyLimiter) decide(ctx context.Context, key limit.Key, take limit.Take, p *faultyPlan) (limit.Decision, error) {
	d, err := l.limiter.Take(ctx, key, take)
	if err != nil {
		return d, err
	}
	at := l.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.number < l.latest {
		l.happens.Overtaken++
	}
	l.latest = max(l.latest, p.number)
	p.index = len(l.decided[key])
	l.decided[key] = append(l.decided[key], Decided{take, d, at, p.losesAnswer})
	return d, nil
}

// Check returns the error of the limiter behind.
func (l *FaultyLimiter) Check(take limit.Take) error { return adapter.Check(l.limiter, take) }

// Describe describes the limiter behind, which must be a [adapter.Describer].
func (l *FaultyLimiter) Describe() []limit.Description {
	return l.limiter.(adapter.Describer).Describe()
}

// Happened returns how often each fault has happened.
func (l *FaultyLimiter) Happened() FaultCounts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.happens
}

// Decided returns what was decided about key, in this order, with the Takes whose answers are lost.
func (l *FaultyLimiter) Decided(key limit.Key) []Decided {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.decided[key])
}

// Granted returns how many tokens were truly granted to key, whether its callers know it or not: those
// taken and charged, less those returned and undone, and what was used in place of estimates that are
// settled. Each Take must be undone or settled at most once.
func (l *FaultyLimiter) Granted(key limit.Key) (tokens int64) {
	for _, d := range l.Decided(key) {
		tokens += d.granted()
	}
	return tokens
}

func (d *Decided) granted() int64 {
	switch m := d.Take.Mode; {
	case m == mode.Partial:
		return d.Decision.Granted
	case m == mode.Charging, m == mode.Whole && d.Decision.Allowed:
		return d.Take.Cost
	case m == mode.Returning:
		return -d.Take.Cost
	case m == mode.Undoing:
		return -d.Take.Undone().Tokens
	case m == mode.Settling:
		return d.Take.Cost - d.Take.Undone().Tokens
	default:
		return 0
	}
}
