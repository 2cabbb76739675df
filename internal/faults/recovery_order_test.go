//go:build unix

package faults_test

import (
	"cmp"
	"slices"

	"github.com/penstock-go/penstock/broker"
)

// A delivery is a story in an epoch. A story whose publication a failover has lost may be published
// again, in another epoch.
type delivery struct {
	epoch string
	story storyID
}

// checkOrder checks that there is one order which agrees with what every client has received, without
// regard to offsets: that the graph in which each delivery points to the next one has no cycle. It
// also checks that acknowledged stories of a publisher, which waits for each, are in its order.
func (c *checker) checkOrder() {
	next := map[delivery]map[delivery]bool{}
	preceding := map[delivery]int{}
	for _, sequence := range c.sequences {
		for i, d := range sequence {
			if next[d] == nil {
				next[d] = map[delivery]bool{}
			}
			if i > 0 && !next[sequence[i-1]][d] {
				next[sequence[i-1]][d] = true
				preceding[d]++
			}
		}
	}
	var free []delivery
	for d := range next {
		if preceding[d] == 0 {
			free = append(free, d)
		}
	}
	left := len(next)
	for ; len(free) > 0; left-- {
		d := free[len(free)-1]
		free = free[:len(free)-1]
		for after := range next[d] {
			if preceding[after]--; preceding[after] == 0 {
				free = append(free, after)
			}
		}
	}
	if left > 0 {
		c.violate(oneOrder, "%d deliveries are in no common order", left)
	}
	c.checkPublishers()
}

func (c *checker) checkPublishers() {
	type acknowledged struct {
		number int
		broker.Position
	}
	type path struct{ publisher, line string }
	paths := map[path][]acknowledged{}
	for id, tries := range c.attempts {
		for _, try := range tries {
			if p := c.reduce(try.position); try.outcome == stored && !c.isDead(p) {
				key := path{id.publisher, c.line(p.Epoch)}
				paths[key] = append(paths[key], acknowledged{id.number, p})
			}
		}
	}
	for key, all := range paths {
		slices.SortFunc(all, func(a, b acknowledged) int { return cmp.Compare(a.number, b.number) })
		for i := 1; i < len(all); i++ {
			if all[i].number > all[i-1].number && all[i].Offset <= all[i-1].Offset {
				c.violate(oneOrder, "%s: number %d is at %v, number %d at %v", key.publisher, all[i-1].number, all[i-1].Position, all[i].number, all[i].Position)
			}
		}
	}
}

// A storing says that an offset was not assigned before a time.
type storing struct {
	at     int64
	offset uint64
}

// sortStored collects the first attempts of all stories with a position that is known before the
// clients' steps are checked, and of those that clients have received.
func (c *checker) sortStored() {
	add := func(id storyID, offset uint64) {
		if tries := c.attempts[id]; len(tries) > 0 {
			c.stored = append(c.stored, storing{tries[0].begun, offset})
		}
	}
	for p, id := range c.at {
		add(id, p.Offset)
	}
	for _, steps := range c.chains {
		for _, s := range steps {
			if s.kind == delivered {
				add(s.story, s.position.Offset)
			}
		}
	}
	slices.SortFunc(c.stored, func(a, b storing) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(c.stored); i++ {
		c.stored[i].offset = max(c.stored[i].offset, c.stored[i-1].offset)
	}
}

// newestAt returns a bound of the offsets that were assigned at a time.
func (c *checker) newestAt(at int64) uint64 {
	i, _ := slices.BinarySearchFunc(c.stored, at+1, func(s storing, at int64) int { return cmp.Compare(s.at, at) })
	if i == 0 {
		return 0
	}
	return c.stored[i-1].offset
}
