package outboundtest

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/outbound"
)

func unknownLimit(b bench) error {
	first, err := b.acquireExactly("a", 1)
	if err != nil {
		return err
	}
	since := time.Now()
	if err := b.respond("a", first[0], outbound.Status{Limit: 5, Remaining: 4, ResetAfter: short}); err != nil {
		return err
	}
	if _, err := b.acquireExactly("a", 4); err != nil {
		return err
	}
	_, err = b.acquireAfter("a", since, short)
	return err
}

func noLimit(b bench) error {
	grants, err := b.unlimited(100)
	if err != nil {
		return err
	}
	// The route gets a limit.
	if err := b.respond("a", grants[0], outbound.Status{Limit: 3, Remaining: 2, ResetAfter: time.Minute}); err != nil {
		return err
	}
	if _, err := b.acquireExactly("a", 2); err != nil {
		return err
	}
	// One response without headers does not remove it.
	if err := b.respond("a", grants[1], outbound.Status{Limit: outbound.Unlimited}); err != nil {
		return err
	}
	return b.mustWait("a")
}

func emptyStatus(b bench) error {
	for range 3 {
		grants, err := b.acquireExactly("a", 1)
		if err != nil {
			return err
		}
		if err := b.respond("a", grants[0], outbound.Status{}); err != nil {
			return err
		}
	}
	return nil
}

func limitHolds(b bench) error {
	grants, err := b.openWindow(3, 3)
	if err != nil {
		return err
	}
	for range 20 { // calls that return a wait acquire nothing
		if err := b.mustWait("a"); err != nil {
			return err
		}
	}
	since := time.Now()
	for i, c := range grants {
		if err := b.respond("a", c, outbound.Status{Limit: 3, Remaining: int64(2 - i), ResetAfter: short}); err != nil {
			return err
		}
	}
	if _, err := b.acquireAfter("a", since, short); err != nil {
		return err
	}
	_, err = b.acquireExactly("a", 2)
	return err
}

func limitChanges(b bench) error {
	grants, err := b.openWindow(3, 3)
	if err != nil {
		return err
	}
	if err := b.respond("a", grants[0], outbound.Status{Limit: 5, Remaining: 4, ResetAfter: time.Minute}); err != nil {
		return err
	}
	more, err := b.acquireExactly("a", 2)
	if err != nil {
		return err
	}
	if err := b.respond("a", more[0], outbound.Status{Limit: 2, Remaining: 0, ResetAfter: time.Minute}); err != nil {
		return err
	}
	return b.mustWait("a")
}

func nothingRemains(b bench) error {
	grants, err := b.acquire("a", 1)
	if err != nil {
		return err
	}
	since := time.Now()
	if err := b.respond("a", grants[0], outbound.Status{Limit: 1, Remaining: 0, ResetAfter: short}); err != nil {
		return err
	}
	if _, err := b.acquireAfter("a", since, short); err != nil {
		return err
	}
	return b.mustWait("a")
}

func independentRoutes(b bench) error {
	for _, route := range []string{"", "a", "a:remaining", "global", "GET /x?{}"} {
		if _, err := b.acquireExactly(route, 1); err != nil {
			return err
		}
	}
	return nil
}

func inFlightAtWindowEnd(b bench) error {
	grants, err := b.openWindow(5, 5)
	if err != nil {
		return err
	}
	since := time.Now()
	for i, c := range grants[:2] {
		if err := b.respond("a", c, outbound.Status{Limit: 5, Remaining: int64(4 - i), ResetAfter: short}); err != nil {
			return err
		}
	}
	if _, err := b.acquireAfter("a", since, short); err != nil {
		return err
	}
	_, err = b.acquireExactly("a", 1) // of the five, acquireAfter has taken one, and three are still in flight
	return err
}

func leaseEnds(b bench) error {
	since := time.Now()
	if _, err := b.acquireExactly("unknown", 1); err != nil {
		return err
	}
	if _, err := b.acquireAfter("unknown", since, lease); err != nil {
		return err
	}
	if err := b.learnLimit("known", 2); err != nil {
		return err
	}
	b.sleep(5 * time.Millisecond)
	since = time.Now()
	if _, err := b.acquireExactly("known", 2); err != nil {
		return err
	}
	for range 2 {
		if _, err := b.acquireAfter("known", since, lease); err != nil {
			return err
		}
	}
	return nil
}

func latestEnd(b bench) error {
	grants, err := b.openWindow(3, 3)
	if err != nil {
		return err
	}
	since := time.Now()
	for i, resetAfter := range []time.Duration{short, 2 * short, time.Millisecond} {
		if err := b.respond("a", grants[i], outbound.Status{Limit: 3, Remaining: int64(2 - i), ResetAfter: resetAfter}); err != nil {
			return err
		}
	}
	_, err = b.acquireAfter("a", since, 2*short)
	return err
}

func lateResponses(b bench) error {
	old, err := b.openWindow(3, 3)
	if err != nil {
		return err
	}
	if err := b.respond("a", old[0], outbound.Status{Limit: 3, Remaining: 2, ResetAfter: time.Millisecond}); err != nil {
		return err
	}
	if _, err := b.acquireAfter("a", time.Now(), 0); err != nil {
		return err
	}
	since := time.Now()
	return inOrder(
		func() error { // this would end the current window if it applied to it
			return b.respond("a", old[1], outbound.Status{Limit: 3, Remaining: 3, ResetAfter: time.Millisecond})
		},
		func() error { return b.mustWait("a") },
		func() error {
			b.sleep(20 * time.Millisecond)
			return b.mustWait("a")
		},
		func() error {
			return b.respond("a", old[2], outbound.Status{Limit: 3, Remaining: 3, ResetAfter: lease + short})
		},
		func() error {
			_, err := b.acquireAfter("a", since, lease+short)
			return err
		})
}

func lateResponseReopens(b bench) error {
	old, err := b.openWindow(3, 3)
	if err != nil {
		return err
	}
	if err := b.respond("a", old[0], outbound.Status{Limit: 3, Remaining: 2, ResetAfter: time.Millisecond}); err != nil {
		return err
	}
	b.sleep(10 * time.Millisecond)
	since := time.Now()
	if err := b.respond("a", old[1], outbound.Status{Limit: 3, Remaining: 2, ResetAfter: short}); err != nil {
		return err
	}
	if _, err := b.acquireExactly("a", 1); err != nil { // the third request is still in flight
		return err
	}
	_, err = b.acquireAfter("a", since, short)
	return err
}

func usedByOtherClients(b bench) error {
	grants, err := b.openWindow(5, 1)
	if err != nil {
		return err
	}
	if err := b.respond("a", grants[0], outbound.Status{Limit: 5, Remaining: 1, ResetAfter: time.Minute}); err != nil {
		return err
	}
	_, err = b.acquireExactly("a", 1)
	return err
}

func rejection(b bench) error {
	grants, err := b.openWindow(5, 2)
	if err != nil {
		return err
	}
	since := time.Now()
	if err := b.respond("a", grants[0], outbound.Status{Limit: 5, Remaining: 3, ResetAfter: time.Millisecond, RetryAfter: short}); err != nil {
		return err
	}
	return inOrder(
		func() error { return b.mustWait("a") },
		func() error {
			_, err := b.acquireExactly("b", 1)
			return err
		},
		func() error { // another response must not reopen the route
			return b.respond("a", grants[1], outbound.Status{Limit: 5, Remaining: 3, ResetAfter: time.Millisecond})
		},
		func() error {
			_, err := b.acquireAfter("a", since, short)
			return err
		})
}

func rejectionWithoutLimit(b bench) error {
	grants, err := b.unlimited(3)
	if err != nil {
		return err
	}
	since := time.Now()
	if err := b.respond("a", grants[0], outbound.Status{RetryAfter: short}); err != nil {
		return err
	}
	return inOrder(
		func() error { return b.mustWait("a") },
		func() error { // another response must not reopen the route
			return b.respond("a", grants[1], outbound.Status{Limit: outbound.Unlimited})
		},
		func() error {
			_, err := b.acquireAfter("a", since, short)
			return err
		},
		func() error {
			_, err := b.acquire("a", 10)
			return err
		})
}

func unsent(b bench) error {
	grants, err := b.openWindow(2, 2)
	if err != nil {
		return err
	}
	if err := b.respond("a", grants[0], outbound.Status{Unsent: true}); err != nil {
		return err
	}
	_, err = b.acquireExactly("a", 1)
	return err
}

func repeatedUpdate(b bench) error {
	grants, err := b.openWindow(9, 3)
	if err != nil {
		return err
	}
	statuses := []outbound.Status{
		{Unsent: true},
		{Limit: 5, Remaining: 3, ResetAfter: time.Minute},
		{},
	}
	for i, c := range grants {
		for range 2 {
			if err := b.respond("a", c, statuses[i]); err != nil {
				return err
			}
		}
	}
	_, err = b.acquireExactly("a", 3)
	return err
}

func invalidGrant(b bench) error {
	for _, id := range []string{"", "id", "1", "x y"} {
		if err := b.respond("a", outbound.Grant{ID: id}, outbound.Status{Limit: 5}); err == nil {
			return fmt.Errorf("the invalid grant %q is accepted by Update; it must be an error", id)
		}
	}
	_, err := b.acquireExactly("a", 1)
	return err
}
