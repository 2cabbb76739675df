package outboundtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/penstock-go/penstock/outbound"
)

// A Case is one rule of the contract.
type Case struct {
	Name  string
	Rule  string
	check func(newWindows func(*outbound.WindowsOptions) outbound.Windows) error
}

// Run fails the test if windows break the rule. Those that newWindows returns know nothing
// yet.
func (c Case) Run(t *testing.T, newWindows func(*outbound.WindowsOptions) outbound.Windows) {
	t.Helper()
	if err := c.check(newWindows); err != nil {
		t.Errorf("%v\nrule: %s", err, c.Rule)
	}
}

// Cases returns the contract.
func Cases() []Case {
	return []Case{
		{"unknown limit", "Of a route whose limit is unknown, one request is under way at a time.", on(unknownLimit)},
		{"no limit", "A route without a limit flows, once that is known.", on(noLimit)},
		{"nothing told", "A response that tells nothing lets the next request go, not two.", on(nothingTold)},
		{"limit", "No more requests are claimed in a window than its limit.", on(limitHolds)},
		{"limit changes", "A limit that changes holds from the response that tells it on.", on(limitChanges)},
		{"limit of nothing", "A window of which nothing remains is waited for, whatever its limit.", on(limitOfNothing)},
		{"routes are apart", "Routes do not influence each other.", on(routesAreApart)},
		{"under way at the end", "What is under way when a window ends counts in the next as well.", on(underWayAtTheEnd)},
		{"lease", "A claim of which nothing is heard counts for a lease, and no longer.", on(leaseEnds)},
		{"latest end", "A window never ends before any response to its requests says so.", on(latestEnd)},
		{"late responses", "Late responses never shorten this window, or give it more requests.", on(lateResponses)},
		{"late response in no window", "A late response of a window that lasts is believed.", on(lateInNoWindow)},
		{"spent by others", "What the API says remains is believed if it is less.", on(spentByOthers)},
		{"refusal", "A refusal closes its route for as long as it says.", on(refusal)},
		{"refusal without a limit", "A refusal closes a route without a limit, too, and leaves it without one.", on(refusalWithoutLimit)},
		{"global refusal", "A global refusal closes all routes, and none shortens another.", on(globalRefusal)},
		{"unsent", "A claim that is given back can be claimed again.", on(unsent)},
		{"told twice", "What is told twice counts once.", on(toldTwice)},
		{"wrong ticket", "A ticket that no claim has is an error, and tells nothing.", on(wrongTicket)},
		{"global limit", "No more requests arrive in any GlobalPer than the global limit.", globalLimit},
	}
}

// Times are short, because some stores have a clock that cannot be moved, and far enough
// apart for busy machines.
const (
	lease = 1200 * time.Millisecond
	brief = 300 * time.Millisecond
	slack = 5 * time.Second
)

func on(check func(b bench) error) func(func(*outbound.WindowsOptions) outbound.Windows) error {
	return func(newWindows func(*outbound.WindowsOptions) outbound.Windows) error {
		return check(bench{newWindows(&outbound.WindowsOptions{Lease: lease})})
	}
}

// A bench is windows under test.
type bench struct{ outbound.Windows }

// claim returns a claim, which may have to wait.
func (b bench) claim(route string) (outbound.Claim, error) {
	return b.Claim(context.Background(), route)
}

// take claims so many requests, which must not wait.
func (b bench) take(route string, requests int) ([]outbound.Claim, error) {
	var claims []outbound.Claim
	for n := range requests {
		c, err := b.claim(route)
		if err != nil {
			return nil, err
		}
		if c.Wait != 0 {
			return nil, fmt.Errorf("claim %d of %d on %q must wait for %v", n+1, requests, route, c.Wait)
		}
		claims = append(claims, c)
	}
	return claims, nil
}

// full fails if a request can be claimed, or if a wait makes no sense.
func (b bench) full(route string) error {
	for range 3 {
		c, err := b.claim(route)
		if err != nil {
			return err
		}
		if c.Wait <= 0 {
			return fmt.Errorf("a request of %q was claimed beside those that may be", route)
		}
	}
	return nil
}

// only claims so many requests, and no more can be.
func (b bench) only(route string, requests int) ([]outbound.Claim, error) {
	claims, err := b.take(route, requests)
	if err != nil {
		return nil, err
	}
	return claims, b.full(route)
}

// waits claims until it can, which must take at least so long, and not much longer.
func (b bench) waits(route string, since time.Time, least time.Duration) (outbound.Claim, error) {
	for {
		c, err := b.claim(route)
		took := time.Since(since)
		switch {
		case err != nil:
			return c, err
		case c.Wait > 0 && took > least+slack:
			return c, fmt.Errorf("a request of %q cannot be claimed after %v; it must be after %v", route, took, least)
		case c.Wait > 0:
			time.Sleep(c.Wait)
		case took < least:
			return c, fmt.Errorf("a request of %q was claimed after %v; it must be after %v", route, took, least)
		default:
			return c, nil
		}
	}
}

func (b bench) tell(route string, c outbound.Claim, told outbound.Status) error {
	return b.Update(context.Background(), route, c, told)
}

// learn makes a limit known, in a window that ends soon.
func (b bench) learn(route string, limit int64) error {
	claims, err := b.take(route, 1)
	if err != nil {
		return err
	}
	return b.tell(route, claims[0], outbound.Status{Limit: limit, ResetAfter: time.Millisecond})
}

// open makes the limit of "a" known, and a window begin with requests.
func (b bench) open(limit int64, requests int) ([]outbound.Claim, error) {
	if err := b.learn("a", limit); err != nil {
		return nil, err
	}
	first, err := b.waits("a", time.Now(), 0)
	if err != nil {
		return nil, err
	}
	others, err := b.take("a", requests-1)
	return append([]outbound.Claim{first}, others...), err
}

// free makes it known that "a" has no limit, and claims requests.
func (b bench) free(requests int) ([]outbound.Claim, error) {
	first, err := b.only("a", 1)
	if err != nil {
		return nil, err
	}
	if err := b.tell("a", first[0], outbound.Status{Limit: outbound.Unlimited}); err != nil {
		return nil, err
	}
	return b.take("a", requests)
}

// after returns the first error.
func after(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
