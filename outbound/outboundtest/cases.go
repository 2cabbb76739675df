package outboundtest

import (
	"fmt"
	"time"

	"github.com/penstock-go/penstock/outbound"
)

func unknownLimit(b bench) error {
	first, err := b.only("a", 1)
	if err != nil {
		return err
	}
	since := time.Now()
	if err := b.tell("a", first[0], outbound.Status{Limit: 5, Remaining: 4, ResetAfter: brief}); err != nil {
		return err
	}
	if _, err := b.only("a", 4); err != nil {
		return err
	}
	_, err = b.waits("a", since, brief)
	return err
}

func noLimit(b bench) error {
	claims, err := b.free(100)
	if err != nil {
		return err
	}
	// It has got one.
	if err := b.tell("a", claims[0], outbound.Status{Limit: 3, Remaining: 2, ResetAfter: time.Minute}); err != nil {
		return err
	}
	if _, err := b.only("a", 2); err != nil {
		return err
	}
	// One response without headers does not take it away.
	if err := b.tell("a", claims[1], outbound.Status{Limit: outbound.Unlimited}); err != nil {
		return err
	}
	return b.full("a")
}

func nothingTold(b bench) error {
	for range 3 {
		claims, err := b.only("a", 1)
		if err != nil {
			return err
		}
		if err := b.tell("a", claims[0], outbound.Status{}); err != nil {
			return err
		}
	}
	return nil
}

func limitHolds(b bench) error {
	claims, err := b.open(3, 3)
	if err != nil {
		return err
	}
	for range 20 { // claims that wait take nothing
		if err := b.full("a"); err != nil {
			return err
		}
	}
	since := time.Now()
	for i, c := range claims {
		if err := b.tell("a", c, outbound.Status{Limit: 3, Remaining: int64(2 - i), ResetAfter: brief}); err != nil {
			return err
		}
	}
	if _, err := b.waits("a", since, brief); err != nil {
		return err
	}
	_, err = b.only("a", 2)
	return err
}

func limitChanges(b bench) error {
	claims, err := b.open(3, 3)
	if err != nil {
		return err
	}
	if err := b.tell("a", claims[0], outbound.Status{Limit: 5, Remaining: 4, ResetAfter: time.Minute}); err != nil {
		return err
	}
	more, err := b.only("a", 2)
	if err != nil {
		return err
	}
	if err := b.tell("a", more[0], outbound.Status{Limit: 2, Remaining: 0, ResetAfter: time.Minute}); err != nil {
		return err
	}
	return b.full("a")
}

func limitOfNothing(b bench) error {
	claims, err := b.take("a", 1)
	if err != nil {
		return err
	}
	since := time.Now()
	if err := b.tell("a", claims[0], outbound.Status{Limit: 1, Remaining: 0, ResetAfter: brief}); err != nil {
		return err
	}
	if _, err := b.waits("a", since, brief); err != nil {
		return err
	}
	return b.full("a")
}

func routesAreApart(b bench) error {
	for _, route := range []string{"", "a", "a:remaining", "global", "GET /x?{}"} {
		if _, err := b.only(route, 1); err != nil {
			return err
		}
	}
	return nil
}

func underWayAtTheEnd(b bench) error {
	claims, err := b.open(5, 5)
	if err != nil {
		return err
	}
	since := time.Now()
	for i, c := range claims[:2] {
		if err := b.tell("a", c, outbound.Status{Limit: 5, Remaining: int64(4 - i), ResetAfter: brief}); err != nil {
			return err
		}
	}
	if _, err := b.waits("a", since, brief); err != nil {
		return err
	}
	_, err = b.only("a", 1) // of five, one is that, and three may yet arrive
	return err
}

func leaseEnds(b bench) error {
	since := time.Now()
	if _, err := b.only("unknown", 1); err != nil {
		return err
	}
	if _, err := b.waits("unknown", since, lease); err != nil {
		return err
	}
	if err := b.learn("known", 2); err != nil {
		return err
	}
	time.Sleep(5 * time.Millisecond)
	since = time.Now()
	if _, err := b.only("known", 2); err != nil {
		return err
	}
	for range 2 {
		if _, err := b.waits("known", since, lease); err != nil {
			return err
		}
	}
	return nil
}

func latestEnd(b bench) error {
	claims, err := b.open(3, 3)
	if err != nil {
		return err
	}
	since := time.Now()
	for i, resetAfter := range []time.Duration{brief, 2 * brief, time.Millisecond} {
		if err := b.tell("a", claims[i], outbound.Status{Limit: 3, Remaining: int64(2 - i), ResetAfter: resetAfter}); err != nil {
			return err
		}
	}
	_, err = b.waits("a", since, 2*brief)
	return err
}

func lateResponses(b bench) error {
	old, err := b.open(3, 3)
	if err != nil {
		return err
	}
	if err := b.tell("a", old[0], outbound.Status{Limit: 3, Remaining: 2, ResetAfter: time.Millisecond}); err != nil {
		return err
	}
	if _, err := b.waits("a", time.Now(), 0); err != nil {
		return err
	}
	since := time.Now()
	return after(
		func() error { // which would end a window that began a moment ago
			return b.tell("a", old[1], outbound.Status{Limit: 3, Remaining: 3, ResetAfter: time.Millisecond})
		},
		func() error { return b.full("a") },
		func() error {
			time.Sleep(20 * time.Millisecond)
			return b.full("a")
		},
		func() error {
			return b.tell("a", old[2], outbound.Status{Limit: 3, Remaining: 3, ResetAfter: lease + brief})
		},
		func() error {
			_, err := b.waits("a", since, lease+brief)
			return err
		})
}

func lateInNoWindow(b bench) error {
	old, err := b.open(3, 3)
	if err != nil {
		return err
	}
	if err := b.tell("a", old[0], outbound.Status{Limit: 3, Remaining: 2, ResetAfter: time.Millisecond}); err != nil {
		return err
	}
	time.Sleep(10 * time.Millisecond)
	since := time.Now()
	if err := b.tell("a", old[1], outbound.Status{Limit: 3, Remaining: 2, ResetAfter: brief}); err != nil {
		return err
	}
	if _, err := b.only("a", 1); err != nil { // the third may yet arrive
		return err
	}
	_, err = b.waits("a", since, brief)
	return err
}

func spentByOthers(b bench) error {
	claims, err := b.open(5, 1)
	if err != nil {
		return err
	}
	if err := b.tell("a", claims[0], outbound.Status{Limit: 5, Remaining: 1, ResetAfter: time.Minute}); err != nil {
		return err
	}
	_, err = b.only("a", 1)
	return err
}

func refusal(b bench) error {
	claims, err := b.open(5, 2)
	if err != nil {
		return err
	}
	since := time.Now()
	if err := b.tell("a", claims[0], outbound.Status{Limit: 5, Remaining: 3, ResetAfter: time.Millisecond, RetryAfter: brief}); err != nil {
		return err
	}
	return after(
		func() error { return b.full("a") },
		func() error {
			_, err := b.only("b", 1)
			return err
		},
		func() error { // nor does another response open it
			return b.tell("a", claims[1], outbound.Status{Limit: 5, Remaining: 3, ResetAfter: time.Millisecond})
		},
		func() error {
			_, err := b.waits("a", since, brief)
			return err
		})
}

func refusalWithoutLimit(b bench) error {
	claims, err := b.free(3)
	if err != nil {
		return err
	}
	since := time.Now()
	if err := b.tell("a", claims[0], outbound.Status{RetryAfter: brief}); err != nil {
		return err
	}
	return after(
		func() error { return b.full("a") },
		func() error { // nor does another response open it
			return b.tell("a", claims[1], outbound.Status{Limit: outbound.Unlimited})
		},
		func() error {
			_, err := b.waits("a", since, brief)
			return err
		},
		func() error {
			_, err := b.take("a", 10)
			return err
		})
}

func globalRefusal(b bench) error {
	claims, err := b.open(5, 2)
	if err != nil {
		return err
	}
	since := time.Now()
	return after(
		func() error {
			return b.tell("a", claims[0], outbound.Status{RetryAfter: 2 * brief, Global: true})
		},
		func() error {
			return b.tell("a", claims[1], outbound.Status{RetryAfter: time.Millisecond, Global: true})
		},
		func() error { return b.full("a") },
		func() error {
			_, err := b.waits("b", since, 2*brief)
			return err
		})
}

func unsent(b bench) error {
	claims, err := b.open(2, 2)
	if err != nil {
		return err
	}
	if err := b.tell("a", claims[0], outbound.Status{Unsent: true}); err != nil {
		return err
	}
	_, err = b.only("a", 1)
	return err
}

func toldTwice(b bench) error {
	claims, err := b.open(9, 3)
	if err != nil {
		return err
	}
	told := []outbound.Status{
		{Unsent: true},
		{Limit: 5, Remaining: 3, ResetAfter: time.Minute},
		{},
	}
	for i, c := range claims {
		for range 2 {
			if err := b.tell("a", c, told[i]); err != nil {
				return err
			}
		}
	}
	_, err = b.only("a", 3)
	return err
}

func globalLimit(newWindows func(*outbound.WindowsOptions) outbound.Windows) error {
	b := bench{newWindows(&outbound.WindowsOptions{Lease: lease, GlobalLimit: 3, GlobalPer: brief})}
	var claims []outbound.Claim
	for _, route := range []string{"a", "b", "c"} {
		taken, err := b.take(route, 1)
		if err != nil {
			return err
		}
		claims = append(claims, taken...)
	}
	if err := b.full("d"); err != nil {
		return err
	}
	time.Sleep(brief / 2) // the requests take their time
	answered := time.Now()
	for i, route := range []string{"a", "b"} {
		if err := b.tell(route, claims[i], outbound.Status{}); err != nil {
			return err
		}
	}
	if _, err := b.waits("d", answered, brief); err != nil {
		return err
	}
	if _, err := b.waits("e", answered, brief); err != nil { // the third one's response is not there
		return err
	}
	if err := b.full("f"); err != nil {
		return err
	}
	if err := b.tell("c", claims[2], outbound.Status{Unsent: true}); err != nil {
		return err
	}
	_, err := b.only("f", 1)
	return err
}

func wrongTicket(b bench) error {
	for _, ticket := range []string{"", "ticket", "1", "x y"} {
		if err := b.tell("a", outbound.Claim{Ticket: ticket}, outbound.Status{Limit: 5}); err == nil {
			return fmt.Errorf("ticket %q is believed", ticket)
		}
	}
	_, err := b.only("a", 1)
	return err
}
