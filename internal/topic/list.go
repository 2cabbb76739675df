package topic

import (
	"iter"
	"slices"

	"github.com/penstock-go/penstock/internal/random"
)

// A connList holds one entry per connection, in the order in which the connections were accepted.
// The sockets and their memory lie in about that order, too, so walking a connList misses the
// caches of the processor less often than walking a map. The entries are in blocks, so that adding
// and removing one moves at most maxBlockEntries others. The zero connList is empty.
type connList[E connEntry] struct {
	blocks [][]E // none is empty
}

// A connEntry is a subscriber, or what a topic keeps for one.
type connEntry interface {
	comparable
	connNumber() uint64
}

// maxBlockEntries is the largest number of entries in a block: 4 KB.
const maxBlockEntries = 512

// put adds an entry. It replaces and returns the entry of the same connection, if there is one.
func (l *connList[E]) put(e E) (before E) {
	b, i, found := l.search(e.connNumber())
	switch {
	case found:
		before, l.blocks[b][i] = l.blocks[b][i], e
		return before
	case len(l.blocks) == 0:
		l.blocks = append(make([][]E, 0, 1), nil)
	case len(l.blocks[b]) == maxBlockEntries:
		b, i = l.split(b, i)
	}
	l.blocks[b] = slices.Insert(l.blocks[b], i, e)
	return before
}

// split makes room for an entry at index i of the full block b, and returns its place. Behind the last
// block it begins a new one, because most connections are added in order: their blocks stay full.
func (l *connList[E]) split(b, i int) (block, index int) {
	full := l.blocks[b]
	if i == len(full) && b+1 == len(l.blocks) {
		l.blocks = append(l.blocks, nil)
		return b + 1, 0
	}
	const half = maxBlockEntries / 2
	l.blocks = slices.Insert(l.blocks, b+1, slices.Clone(full[half:]))
	clear(full[half:])
	l.blocks[b] = full[:half]
	if i <= half {
		return b, i
	}
	return b + 1, i - half
}

// remove removes the entry of a connection, and reports whether there was one.
func (l *connList[E]) remove(s *Subscriber) bool {
	b, i, found := l.search(s.Number)
	if !found {
		return false
	}
	if len(l.blocks[b]) == 1 {
		l.removeBlock(b)
		return true
	}
	l.blocks[b] = shrink(slices.Delete(l.blocks[b], i, i+1))
	if !l.merge(b) && b > 0 {
		l.merge(b - 1)
	}
	return true
}

// merge joins the blocks b and b+1 if they are together half of a block at most, and reports
// whether it did. So the number of blocks is in proportion to that of entries.
func (l *connList[E]) merge(b int) bool {
	if b+1 >= len(l.blocks) || len(l.blocks[b])+len(l.blocks[b+1]) > maxBlockEntries/2 {
		return false
	}
	l.blocks[b] = append(l.blocks[b], l.blocks[b+1]...)
	l.removeBlock(b + 1)
	return true
}

// removeBlock removes a block, and the memory of all if it was the last one.
func (l *connList[E]) removeBlock(b int) {
	if l.blocks = shrink(slices.Delete(l.blocks, b, b+1)); len(l.blocks) == 0 {
		l.blocks = nil
	}
}

// shrink moves a slice that uses a quarter of its memory or less.
func shrink[T any](s []T) []T {
	if n := cap(s); n > 4 && len(s) <= n/4 {
		return append(make([]T, 0, n/2), s...)
	}
	return s
}

// find returns the entry of a connection, or the zero value if there is none.
func (l *connList[E]) find(s *Subscriber) (e E) {
	if b, i, found := l.search(s.Number); found {
		return l.blocks[b][i]
	}
	return e
}

// search returns the place of the entry with a number, or where to insert it. The block is 0 if
// there are none.
func (l *connList[E]) search(number uint64) (block, index int, found bool) {
	n := len(l.blocks)
	if n == 0 {
		return 0, 0, false
	}
	if last := l.blocks[n-1]; last[len(last)-1].connNumber() < number {
		return n - 1, len(last), false
	}
	block, found = slices.BinarySearchFunc(l.blocks, number, func(b []E, number uint64) int { return compareNumber(b[0], number) })
	if found {
		return block, 0, true
	}
	block = max(block-1, 0)
	index, found = slices.BinarySearchFunc(l.blocks[block], number, compareNumber)
	return block, index, found
}

func compareNumber[E connEntry](e E, number uint64) int {
	switch n := e.connNumber(); {
	case n < number:
		return -1
	case n > number:
		return 1
	}
	return 0
}

// chunkEntries is the largest number of entries in a chunk.
const chunkEntries = 16

// chunks iterates over the entries, several at a time. A publication first looks at the connections
// of a chunk, and then queues its frames: the processor does not wait for each of these first
// looks, so it fetches the memory of several connections at the same time. The list must not be
// changed meanwhile.
func (l *connList[E]) chunks() iter.Seq[[]E] {
	return func(yield func([]E) bool) {
		for _, block := range l.blocks {
			for chunk := range slices.Chunk(block, chunkEntries) {
				if !yield(chunk) {
					return
				}
			}
		}
	}
}

// all iterates over the entries. The list must not be changed meanwhile.
func (l *connList[E]) all() iter.Seq[E] {
	return func(yield func(E) bool) {
		for _, block := range l.blocks {
			for _, e := range block {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// sample iterates over all entries if there are at most n, or else over n random ones, some perhaps
// repeatedly. The list must not be changed meanwhile.
func (l *connList[E]) sample(n int) iter.Seq[E] {
	if len(l.blocks) == 0 || len(l.blocks) == 1 && len(l.blocks[0]) <= n {
		return l.all()
	}
	return func(yield func(E) bool) {
		for range n {
			block := l.blocks[random.N(len(l.blocks))]
			if !yield(block[random.N(len(block))]) {
				return
			}
		}
	}
}
