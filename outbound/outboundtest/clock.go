package outboundtest

import (
	"time"

	"github.com/penstock-go/penstock/outbound"
)

// clockStep is longer than every wait of the cases.
const clockStep = time.Hour

func clockGoesBackwards(h Harness) error {
	if h.StepClock == nil {
		return errNoClock
	}
	closed := h.bench(outbound.BudgetOptions{Lease: lease})
	paused := h.bench(outbound.BudgetOptions{Lease: lease})
	limited := h.bench(outbound.BudgetOptions{Lease: lease, GlobalLimit: 1, GlobalPer: short})
	since := time.Now()
	return inOrder(
		func() error { return closed.closeRoutes() },
		func() error {
			return paused.respondTo("a", outbound.Status{RetryAfter: short, Global: true})
		},
		func() error {
			_, err := limited.acquireExactly("a", 1) // it gets no response
			return err
		},
		func() error {
			h.StepClock(-clockStep)
			return closed.allOpenAfter(since)
		},
		func() error {
			_, err := paused.acquireAfter("b", since, short)
			return err
		},
		func() error {
			_, err := limited.acquireAfter("b", since, lease)
			return err
		},
		func() error { return pauseAfterStep(h) },
		func() error { return responseAfterStep(h) })
}

// closedFor leaves a busy machine the time to check that the routes are closed.
const closedFor = lease

// closeRoutes closes route "window" by an exhausted window, "rejected" and "unlimited" by a
// rejection, and "unknown" by a request without a response.
func (b bench) closeRoutes() error {
	if err := b.respondTo("unlimited", outbound.Status{Limit: outbound.Unlimited}); err != nil {
		return err
	}
	return inOrder(
		func() error {
			return b.respondTo("window", outbound.Status{Limit: 1, ResetAfter: closedFor})
		},
		func() error { return b.respondTo("rejected", outbound.Status{RetryAfter: closedFor}) },
		func() error { return b.respondTo("unlimited", outbound.Status{RetryAfter: closedFor}) },
		func() error {
			_, err := b.acquireExactly("unknown", 1)
			return err
		})
}

// allOpenAfter fails unless the routes of closeRoutes open in time.
func (b bench) allOpenAfter(since time.Time) error {
	for _, route := range []string{"window", "rejected", "unlimited"} {
		if err := b.mustWait(route); err != nil {
			return err
		}
	}
	for _, route := range []string{"window", "rejected", "unlimited"} {
		if _, err := b.acquireAfter(route, since, closedFor); err != nil {
			return err
		}
	}
	_, err := b.acquireAfter("unknown", since, lease)
	return err
}

// pauseAfterStep fails if the remainder of a pause from before a step shortens a pause from after
// it.
func pauseAfterStep(h Harness) error {
	b := h.bench(outbound.BudgetOptions{Lease: lease})
	grants, err := b.openWindow(5, 2)
	if err != nil {
		return err
	}
	if err := b.respond("a", grants[0], outbound.Status{RetryAfter: short, Global: true}); err != nil {
		return err
	}
	h.StepClock(-clockStep)
	since := time.Now()
	if err := b.respond("a", grants[1], outbound.Status{RetryAfter: 3 * short, Global: true}); err != nil {
		return err
	}
	_, err = b.acquireAfter("b", since, 3*short)
	return err
}

// responseAfterStep fails if a response from after a step restores the end of a window from
// before it.
func responseAfterStep(h Harness) error {
	b := h.bench(outbound.BudgetOptions{Lease: lease})
	grants, err := b.openWindow(2, 2)
	if err != nil {
		return err
	}
	status := outbound.Status{Limit: 2, ResetAfter: short}
	if err := b.respond("a", grants[0], status); err != nil {
		return err
	}
	h.StepClock(-clockStep)
	since := time.Now()
	if err := b.respond("a", grants[1], status); err != nil {
		return err
	}
	_, err = b.acquireAfter("a", since, short)
	return err
}

func clockGoesForward(h Harness) error {
	if h.StepClock == nil {
		return errNoClock
	}
	b := h.bench(outbound.BudgetOptions{Lease: lease})
	limited := h.bench(outbound.BudgetOptions{Lease: lease, GlobalLimit: 1, GlobalPer: short})
	grants, err := b.openWindow(3, 3)
	if err != nil {
		return err
	}
	return inOrder(
		func() error {
			return b.respond("a", grants[0], outbound.Status{Limit: 3, Remaining: 2, ResetAfter: time.Minute})
		},
		func() error {
			_, err := limited.acquireExactly("a", 1)
			return err
		},
		func() error {
			h.StepClock(clockStep)
			_, err := b.acquireExactly("a", 3)
			return err
		},
		func() error {
			_, err := limited.acquireExactly("b", 1)
			return err
		})
}

// respondTo acquires a request, which must not wait, and reports the response to it.
func (b bench) respondTo(route string, status outbound.Status) error {
	grants, err := b.acquire(route, 1)
	if err != nil {
		return err
	}
	return b.respond(route, grants[0], status)
}
