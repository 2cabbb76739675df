package outboundtest

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/outbound"
)

func globalRejection(b bench) error {
	grants, err := b.openWindow(5, 2)
	if err != nil {
		return err
	}
	since := time.Now()
	return inOrder(
		func() error {
			return b.respond("a", grants[0], outbound.Status{RetryAfter: 2 * short, Global: true})
		},
		func() error {
			return b.respond("a", grants[1], outbound.Status{RetryAfter: time.Millisecond, Global: true})
		},
		func() error { return b.mustWait("a") },
		func() error {
			_, err := b.acquireAfter("b", since, 2*short)
			return err
		})
}

func globalLimit(h Harness) error {
	b := h.bench(outbound.BudgetOptions{Lease: lease, GlobalLimit: 3, GlobalPer: short})
	var grants []outbound.Grant
	for _, route := range []string{"a", "b", "c"} {
		acquired, err := b.acquire(route, 1)
		if err != nil {
			return err
		}
		grants = append(grants, acquired...)
	}
	if err := b.mustWait("d"); err != nil {
		return err
	}
	b.sleep(short / 2) // the requests are in flight for a while
	answered := time.Now()
	for i, route := range []string{"a", "b"} {
		if err := b.respond(route, grants[i], outbound.Status{}); err != nil {
			return err
		}
	}
	if _, err := b.acquireAfter("d", answered, short); err != nil {
		return err
	}
	if _, err := b.acquireAfter("e", answered, short); err != nil { // the third request has no response yet
		return err
	}
	if err := b.mustWait("f"); err != nil {
		return err
	}
	if err := b.respond("c", grants[2], outbound.Status{Unsent: true}); err != nil {
		return err
	}
	_, err := b.acquireExactly("f", 1)
	return err
}

func sharedLimit(h Harness) error {
	b := h.bench(outbound.BudgetOptions{Lease: lease, GlobalLimit: 2, GlobalPer: time.Minute})
	acquire := func() (outbound.Grant, error) { return b.TryAcquireShared(context.Background(), "shared") }
	first, err := acquire()
	if err != nil {
		return err
	}
	if err := b.respond("shared", first, outbound.Status{Limit: 5, Remaining: 4, ResetAfter: time.Minute}); err != nil {
		return err
	}
	for n := range 5 {
		g, err := acquire()
		if err != nil {
			return err
		}
		if (g.Wait > 0) != (n == 4) {
			return fmt.Errorf("request %d of 4 to a shared limit has to wait for %v", n+1, g.Wait)
		}
	}
	if _, err := b.acquire("a", 1); err != nil {
		return err
	}
	if _, err := b.acquire("b", 1); err != nil {
		return err
	}
	return b.mustWait("c")
}
