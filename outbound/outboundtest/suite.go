package outboundtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/outbound"
)

// A Harness creates budgets for the cases.
type Harness struct {
	// New returns an empty Budget, which shares no routes with an earlier one.
	New func(*outbound.BudgetOptions) outbound.Budget

	// StepClock moves the clock of all budgets by d at once, as an administrator might. If d is
	// negative, the clock goes backwards. It is nil if the clock cannot be moved, such as the
	// monotonic clock of a process; the cases about such steps are skipped then.
	StepClock func(d time.Duration)

	slept *time.Duration // for how long the case has slept on purpose
}

// A Case checks one rule of the contract. Get cases from [Cases]; the zero Case has no check.
type Case struct {
	Name  string
	Rule  string // the rule, as a sentence
	check func(Harness) error
}

// errNoClock is the result of a case that needs [Harness.StepClock].
var errNoClock = errors.New("the clock of these budgets cannot be moved")

// maxAttempts is how often a case is repeated that fails on a machine that was too busy for its durations.
const maxAttempts = 5

// Run fails the test if a budget breaks the rule. A case that fails after it was delayed by more
// than its durations allow, as on a busy machine, is repeated with new budgets.
func (c Case) Run(t *testing.T, h Harness) {
	t.Helper()
	switch err := c.repeat(h, t.Logf); {
	case errors.Is(err, errNoClock):
		t.Skip(err)
	case err != nil:
		t.Errorf("%v\nrule: %s", err, c.Rule)
	}
}

// repeat returns the error of the last attempt.
func (c Case) repeat(h Harness, logf func(format string, args ...any)) error {
	for attempt := 1; ; attempt++ {
		start := time.Now()
		h.slept = new(time.Duration)
		err := c.check(h)
		delay := time.Since(start) - *h.slept
		if err == nil || errors.Is(err, errNoClock) || delay < maxDelay || attempt == maxAttempts {
			return err
		}
		logf("attempt %d was delayed by %v and is repeated: %v", attempt, delay, err)
	}
}

// Cases returns all cases. They may run in parallel.
func Cases() []Case {
	return []Case{
		{"unknown limit", "While the limit of a route is unknown, one request is in flight at a time.", with(unknownLimit)},
		{"no limit", "Requests to a route that is known to have no limit never wait.", with(noLimit)},
		{"empty status", "A response without any rate limit status permits exactly one more request.", with(emptyStatus)},
		{"limit", "A window permits no more requests than its limit.", with(limitHolds)},
		{"limit changes", "A changed limit applies from the response that reports it.", with(limitChanges)},
		{"nothing remains", "If a response says that nothing remains, the next request waits for the end of the window.", with(nothingRemains)},
		{"independent routes", "Routes do not influence each other.", with(independentRoutes)},
		{"in flight at window end", "Requests in flight at the end of a window also count in the next window.", with(inFlightAtWindowEnd)},
		{"lease", "A request without a response counts for one lease and no longer.", with(leaseEnds)},
		{"latest end", "A window does not end before the latest end that a response to its requests reports.", with(latestEnd)},
		{"late responses", "Late responses never shorten the current window and never add requests to it.", with(lateResponses)},
		{"late response reopens", "A late response that reports a later end of its window reopens that window.", with(lateResponseReopens)},
		{"used by other clients", "If the API reports fewer remaining requests than counted, its number applies.", with(usedByOtherClients)},
		{"rejection", "A rejection closes its route for the duration that it states.", with(rejection)},
		{"rejection without a limit", "A rejection also closes a route without a limit, and the route stays without a limit.", with(rejectionWithoutLimit)},
		{"global rejection", "A global rejection closes all routes, and never shortens an earlier one.", with(globalRejection)},
		{"unsent", "An unsent request no longer counts.", with(unsent)},
		{"repeated update", "Repeating an update has no further effect.", with(repeatedUpdate)},
		{"invalid grant", "An invalid grant is an error, and its status is ignored.", with(invalidGrant)},
		{"global limit", "In any GlobalPer, no more requests arrive than the global limit.", globalLimit},
		{"shared limit", "A shared limit is as a route, and its requests do not count against the global limit.", sharedLimit},
		{"clock goes backwards", "If the clock goes backwards, no wait becomes longer, and no window ends early.", clockGoesBackwards},
		{"clock goes forward", "If the clock goes forward, a route gets the requests of at most one additional window.", clockGoesForward},
	}
}

// The durations are short because the clock of some stores cannot be faked.
const (
	lease = 1200 * time.Millisecond
	short = 300 * time.Millisecond
	slack = 5 * time.Second

	// maxDelay is how long all calls of a case may take together without any effect on its result.
	maxDelay = short / 4
)

func with(check func(b bench) error) func(Harness) error {
	return func(h Harness) error {
		return check(h.bench(outbound.BudgetOptions{Lease: lease}))
	}
}

// A bench is a Budget under test.
type bench struct {
	outbound.Budget

	slept *time.Duration
}

func (h Harness) bench(o outbound.BudgetOptions) bench {
	return bench{Budget: h.New(&o), slept: h.slept}
}

func (b bench) sleep(d time.Duration) {
	*b.slept += d
	time.Sleep(d)
}

func (b bench) tryAcquire(route string) (outbound.Grant, error) {
	return b.TryAcquire(context.Background(), route)
}

// acquire acquires n requests, which must not wait.
func (b bench) acquire(route string, n int) ([]outbound.Grant, error) {
	var grants []outbound.Grant
	for i := range n {
		g, err := b.tryAcquire(route)
		if err != nil {
			return nil, err
		}
		if g.Wait != 0 {
			return nil, fmt.Errorf("request %d of %d to %q must wait for %v; it must be permitted", i+1, n, route, g.Wait)
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// mustWait fails if a request is permitted.
func (b bench) mustWait(route string) error {
	for range 3 {
		g, err := b.tryAcquire(route)
		if err != nil {
			return err
		}
		if g.Wait <= 0 {
			return fmt.Errorf("a request to %q is permitted (Wait is %v); it must wait", route, g.Wait)
		}
	}
	return nil
}

// acquireExactly acquires n requests, and fails if one more is permitted.
func (b bench) acquireExactly(route string, n int) ([]outbound.Grant, error) {
	grants, err := b.acquire(route, n)
	if err != nil {
		return nil, err
	}
	return grants, b.mustWait(route)
}

// acquireAfter waits for a request. It fails unless the request is permitted between least and
// least+slack after since.
func (b bench) acquireAfter(route string, since time.Time, least time.Duration) (outbound.Grant, error) {
	for {
		g, err := b.tryAcquire(route)
		elapsed := time.Since(since)
		switch {
		case err != nil:
			return g, err
		case g.Wait > 0 && elapsed > least+slack:
			return g, fmt.Errorf("a request to %q must still wait after %v; it must be permitted after %v", route, elapsed, least)
		case g.Wait > 0:
			b.sleep(min(g.Wait, least+slack-elapsed+time.Millisecond))
		case elapsed < least:
			return g, fmt.Errorf("a request to %q is permitted after %v; it must wait for %v", route, elapsed, least)
		default:
			return g, nil
		}
	}
}

func (b bench) respond(route string, g outbound.Grant, status outbound.Status) error {
	return b.Update(context.Background(), route, g, status)
}

// learnLimit reports a limit, in a window that ends after a millisecond.
func (b bench) learnLimit(route string, limit int64) error {
	grants, err := b.acquire(route, 1)
	if err != nil {
		return err
	}
	return b.respond(route, grants[0], outbound.Status{Limit: limit, ResetAfter: time.Millisecond})
}

// openWindow reports the limit of route "a", and acquires n requests in a new window.
func (b bench) openWindow(limit int64, n int) ([]outbound.Grant, error) {
	if err := b.learnLimit("a", limit); err != nil {
		return nil, err
	}
	first, err := b.acquireAfter("a", time.Now(), 0)
	if err != nil {
		return nil, err
	}
	others, err := b.acquire("a", n-1)
	return append([]outbound.Grant{first}, others...), err
}

// unlimited reports that route "a" has no limit, and acquires n requests.
func (b bench) unlimited(n int) ([]outbound.Grant, error) {
	first, err := b.acquireExactly("a", 1)
	if err != nil {
		return nil, err
	}
	if err := b.respond("a", first[0], outbound.Status{Limit: outbound.Unlimited}); err != nil {
		return nil, err
	}
	return b.acquire("a", n)
}

// inOrder runs the steps until one fails, and returns its error.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
