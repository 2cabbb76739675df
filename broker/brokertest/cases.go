package brokertest

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/penstock-go/penstock/errors"
)

func closeAll(peers ...*peer) {
	for _, p := range peers {
		p.Close()
	}
}

func packetArrives(c Cluster) error {
	a, b, d := c.join(), c.join(), c.join()
	defer closeAll(a, b, d)
	if err := errors.Join(b.on("news"), d.on("news")); err != nil {
		return err
	}
	a.Publish("news", []byte("hello"))
	return errors.Join(b.got("news", "hello"), d.got("news", "hello"))
}

func notAtHome(c Cluster) error {
	a, b := c.join(), c.join()
	defer closeAll(a, b)
	if err := errors.Join(a.on("news"), b.on("news")); err != nil {
		return err
	}
	a.Publish("news", []byte("hello"))
	return errors.Join(b.got("news", "hello"), a.got("news"))
}

func otherTopics(c Cluster) error {
	a, b := c.join(), c.join()
	defer closeAll(a, b)
	names := []string{"", "*", "a:b", "a", "b", "{a}", "{", "a b", "a\x00b", "ä", "a%3Ab", "a:b:", strings.Repeat("long", 100), strings.Repeat("long", 100) + "er"}
	for _, name := range names[1:] {
		if err := b.on(name); err != nil {
			return err
		}
	}
	for _, name := range names {
		a.Publish(name, []byte(name))
	}
	for _, name := range names[1:] {
		if err := b.got(name, name); err != nil {
			return err
		}
	}
	return b.got("")
}

func unsubscribe(c Cluster) error {
	a, b := c.join(), c.join()
	defer closeAll(a, b)
	if err := errors.Join(b.on("news"), b.on("end")); err != nil {
		return err
	}
	b.Unsubscribe("news")
	if err := b.on("other"); err != nil { // so that it is in effect
		return err
	}
	a.Publish("news", []byte("too late"))
	a.Publish("end", []byte("end"))
	return errors.Join(b.got("end", "end"), b.got("news"))
}

func subscribeAgain(c Cluster) error {
	a, b := c.join(), c.join()
	defer closeAll(a, b)
	for n := range 20 {
		if err := b.on("news"); err != nil {
			return err
		}
		if n < 19 {
			b.Unsubscribe("news")
		}
	}
	a.Publish("news", []byte("once"))
	return b.got("news", "once")
}

func subscribedIsTrue(c Cluster) error {
	a, b := c.join(), c.join()
	defer closeAll(a, b)
	for n := range 50 {
		topic := "topic " + strconv.Itoa(n)
		if err := b.on(topic); err != nil {
			return err
		}
		a.Publish(topic, []byte("now"))
	}
	for n := range 50 {
		topic := "topic " + strconv.Itoa(n)
		if err := b.await("a packet on "+topic, func() bool { return len(b.received) == 50 }); err != nil {
			return err
		}
	}
	return nil
}

func order(c Cluster) error {
	a, b := c.join(), c.join()
	defer closeAll(a, b)
	if err := b.on("news"); err != nil {
		return err
	}
	var want []string
	for n := range 2000 {
		want = append(want, strconv.Itoa(n))
		a.Publish("news", []byte(want[n]))
	}
	return b.got("news", want...)
}

func manyPublishers(c Cluster) error {
	const publishers, each = 4, 300
	peers := []*peer{c.join(), c.join(), c.join()}
	defer closeAll(peers...)
	for _, p := range peers {
		if err := p.on("news"); err != nil {
			return err
		}
	}
	var wg sync.WaitGroup
	for _, p := range peers {
		for g := range publishers {
			wg.Go(func() {
				for n := range each {
					p.Publish("news", fmt.Appendf(nil, "%d %d", g, n))
				}
			})
		}
	}
	wg.Wait()
	for _, p := range peers {
		if err := p.await("everything", func() bool { return len(p.received) >= 2*publishers*each }); err != nil {
			return err
		}
		if err := p.inOrder(2 * publishers * each); err != nil {
			return err
		}
	}
	return nil
}

// inOrder wants each publisher's numbers to count up.
func (p *peer) inOrder(total int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.received) != total {
		return fmt.Errorf("%d packets came, want %d", len(p.received), total)
	}
	next := map[string]int{}
	for _, r := range p.received {
		var g, n int
		if _, err := fmt.Sscan(r.packet, &g, &n); err != nil {
			return fmt.Errorf("packet %q: %w", r.packet, err)
		}
		publisher := fmt.Sprint(r.from, " ", g)
		if n != next[publisher] {
			return fmt.Errorf("packet %d of publisher %s came in place of %d", n, publisher, next[publisher])
		}
		next[publisher]++
	}
	return nil
}

func largePackets(c Cluster) error {
	a, b := c.join(), c.join()
	defer closeAll(a, b)
	if err := b.on("news"); err != nil {
		return err
	}
	large := strings.Repeat("\x00\r\n\xff", 1<<18)
	a.Publish("news", nil)
	a.Publish("news", []byte(large))
	a.Publish("news", []byte("\r\n"))
	return b.got("news", "", large, "\r\n")
}

func goodbye(c Cluster) error {
	return ends(c, func(p *peer) { p.Close() })
}

func crash(c Cluster) error {
	return ends(c, func(p *peer) {
		if c.Kill == nil {
			p.Close()
			return
		}
		c.Kill(p.Session)
	})
}

func ends(c Cluster, end func(*peer)) error {
	a, b, d := c.join(), c.join(), c.join()
	defer closeAll(b, d)
	if err := errors.Join(b.on("news"), d.on("news")); err != nil {
		return err
	}
	a.Publish("news", []byte("hello"))
	if err := errors.Join(b.got("news", "hello"), d.got("news", "hello")); err != nil {
		return err
	}
	end(a)
	for _, p := range []*peer{b, d} {
		if err := p.await("Down", func() bool { return len(p.down) > 0 }); err != nil {
			return err
		}
		if p.down[0] != p.received[0].from || len(p.down) > 1 {
			return fmt.Errorf("%q are down, want %q", p.down, p.received[0].from)
		}
	}
	return nil
}

func afterClose(c Cluster) error {
	a, b := c.join(), c.join()
	defer closeAll(a, b)
	if err := b.on("news"); err != nil {
		return err
	}
	a.Close()
	a.Close()
	a.Publish("news", []byte("from the grave"))
	a.Subscribe("news")
	a.Unsubscribe("news")
	return b.got("news")
}
