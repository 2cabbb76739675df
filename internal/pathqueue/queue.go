// Package pathqueue sends items that must keep their order to several servers, in few round trips.
// A partition is the unit of order, and a path leads to the server that has the partition now.
// Items of a partition that wait while others of it are in flight share the next batch, and
// partitions of a path share round trips.
//
// # Goroutines and locks
//
// Each path with items has up to Config.RoundTrips goroutines, which send. Queue.mu guards
// everything. It is held while Config.Path and Config.Size run, but not while Config.Send does.
package pathqueue

import (
	"context"
	"sync"
	"time"
)

// Config is what a Queue needs.
type Config[T any] struct {
	// Path returns the path of a partition, which may change. It must not block.
	Path func(partition int) string

	// Send sends batches of a path, each of another partition, in one round trip, and returns how
	// long the goroutine that called it then waits. It must not keep the items.
	Send func(path string, batches []Batch[T]) (pause time.Duration)

	// Size returns how many bytes an item counts.
	Size func(T) int

	// RoundTrips is how many round trips of a path may be in flight: each has partitions of its
	// own.
	RoundTrips int

	// The most that a batch and a round trip have. A single item may be larger.
	MaxBatch, MaxRoundTrip Amount
}

// An Amount is a number of items and of their bytes.
type Amount struct{ Items, Bytes int }

// A Batch has items of a partition, in their order.
type Batch[T any] struct {
	Partition int
	Items     []T

	bytes int
}

// A Queue has the items that wait or are in flight. At most one batch of a partition is in flight:
// a partition belongs to one sender until its batch is sent, even if its path changes.
type Queue[T any] struct {
	config Config[T]

	mu         sync.Mutex
	partitions map[int]*partition[T]    // with items
	senders    map[senderKey]*sender[T] // whose goroutines run
	items      int                      // that wait or are in flight
	emptied    chan struct{}            // closed when items becomes 0; nil unless a call waits for that
	isClosed   bool
	closed     chan struct{} // closed by Close
}

type partition[T any] struct {
	number   int
	waiting  []T
	bytes    int // of waiting
	sender   *sender[T]
	inFlight bool
}

type senderKey struct {
	path  string
	share int // of the partitions; less than Config.RoundTrips
}

type sender[T any] struct {
	key   senderKey
	ready []*partition[T] // of which no batch is in flight, and which may have no items any more
	bytes int             // of items that wait or are in flight
}

// New returns an empty queue.
func New[T any](config Config[T]) *Queue[T] {
	return &Queue[T]{config: config, partitions: map[int]*partition[T]{}, senders: map[senderKey]*sender[T]{}, closed: make(chan struct{})}
}

// Add adds an item behind those of its partition. It reports false, and does nothing, if the queue
// is closed.
func (q *Queue[T]) Add(partitionNumber int, item T) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.isClosed {
		return false
	}
	p, size := q.partitions[partitionNumber], q.config.Size(item)
	if p == nil {
		p = &partition[T]{number: partitionNumber}
		q.partitions[partitionNumber] = p
		q.makeReadyLocked(p)
	}
	p.waiting = append(p.waiting, item)
	p.bytes += size
	p.sender.bytes += size
	q.items++
	return true
}

// makeReadyLocked gives a partition to a sender of its path.
func (q *Queue[T]) makeReadyLocked(p *partition[T]) {
	key := q.keyLocked(p.number)
	s := q.senders[key]
	if s == nil {
		s = &sender[T]{key: key}
		q.senders[key] = s
		go q.run(s)
	}
	p.sender, p.inFlight = s, false
	s.bytes += p.bytes
	s.ready = append(s.ready, p)
}

func (q *Queue[T]) keyLocked(partition int) senderKey {
	return senderKey{q.config.Path(partition), partition % q.config.RoundTrips}
}

// run sends until nothing of the sender waits.
func (q *Queue[T]) run(s *sender[T]) {
	for batches := q.next(s); len(batches) > 0; batches = q.next(s) {
		pause := q.config.Send(s.key.path, batches)
		q.finish(s, batches)
		if pause <= 0 {
			continue
		}
		select {
		case <-time.After(pause):
		case <-q.closed:
		}
	}
}

// next returns the next batches of a sender. If nothing waits, it removes the sender.
func (q *Queue[T]) next(s *sender[T]) (batches []Batch[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.config.MaxRoundTrip
	for len(s.ready) > 0 && left.Items > 0 && left.Bytes > 0 {
		p := s.ready[0]
		s.ready = s.ready[1:]
		if len(p.waiting) == 0 { // it was discarded
			delete(q.partitions, p.number)
			continue
		}
		b := q.takeLocked(p, left)
		left.Items -= len(b.Items)
		left.Bytes -= b.bytes
		batches = append(batches, b)
	}
	if len(batches) == 0 {
		delete(q.senders, s.key)
	}
	return batches
}

// takeLocked takes the next batch of a partition.
func (q *Queue[T]) takeLocked(p *partition[T], left Amount) Batch[T] {
	maxItems, maxBytes := min(q.config.MaxBatch.Items, left.Items), min(q.config.MaxBatch.Bytes, left.Bytes)
	n, bytes := 0, 0
	for n < len(p.waiting) && n < maxItems {
		size := q.config.Size(p.waiting[n])
		if n > 0 && bytes+size > maxBytes {
			break
		}
		n, bytes = n+1, bytes+size
	}
	b := Batch[T]{Partition: p.number, Items: p.waiting[:n:n], bytes: bytes}
	p.waiting, p.bytes, p.inFlight = p.waiting[n:], p.bytes-bytes, true
	return b
}

// finish forgets batches that were sent. Their partitions become ready again if items wait; their
// paths may have changed.
func (q *Queue[T]) finish(s *sender[T], batches []Batch[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range batches {
		q.items -= len(b.Items)
		s.bytes -= b.bytes
		clear(b.Items) // the partition may still use the memory behind them
		p := q.partitions[b.Partition]
		if len(p.waiting) == 0 {
			delete(q.partitions, p.number)
			continue
		}
		s.bytes -= p.bytes
		q.makeReadyLocked(p)
	}
	q.checkEmptiedLocked()
}

// Path returns the path on which the next item of a partition will be sent, unless the path
// changes.
func (q *Queue[T]) Path(partition int) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pathLocked(partition)
}

func (q *Queue[T]) pathLocked(partition int) string {
	if p := q.partitions[partition]; p != nil && !p.inFlight {
		return p.sender.key.path
	}
	return q.config.Path(partition)
}

// Bytes returns the bytes of the items that wait or are in flight on the path of a partition, among
// its share of the path's partitions.
func (q *Queue[T]) Bytes(partition int) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.partitions[partition]; p != nil {
		return p.sender.bytes
	}
	if s := q.senders[q.keyLocked(partition)]; s != nil {
		return s.bytes
	}
	return 0
}

// Waiting returns how many items wait, without those in flight.
func (q *Queue[T]) Waiting() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.partitions {
		n += len(p.waiting)
	}
	return n
}

// DiscardPath removes the items that wait for a path, and returns them.
func (q *Queue[T]) DiscardPath(path string) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.discardLocked(func(p *partition[T]) bool { return q.pathLocked(p.number) == path })
}

// Discard removes all items that wait, and returns them.
func (q *Queue[T]) Discard() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.discardLocked(func(*partition[T]) bool { return true })
}

// Close is Discard, and rejects further items. Those that are in flight stay so; see Wait.
func (q *Queue[T]) Close() []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.isClosed {
		q.isClosed = true
		close(q.closed)
	}
	return q.discardLocked(func(*partition[T]) bool { return true })
}

// discardLocked leaves empty partitions to their senders.
func (q *Queue[T]) discardLocked(matches func(*partition[T]) bool) (discarded []T) {
	for _, p := range q.partitions {
		if !matches(p) {
			continue
		}
		discarded = append(discarded, p.waiting...)
		q.items -= len(p.waiting)
		p.sender.bytes -= p.bytes
		p.waiting, p.bytes = nil, 0
	}
	q.checkEmptiedLocked()
	return discarded
}

// Wait waits until nothing waits and nothing is in flight, or ctx is done.
func (q *Queue[T]) Wait(ctx context.Context) {
	select {
	case <-q.whenEmptied():
	case <-ctx.Done():
	}
}

// whenEmptied returns a channel that is closed once the queue is empty.
func (q *Queue[T]) whenEmptied() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.emptied == nil {
		q.emptied = make(chan struct{})
	}
	emptied := q.emptied
	q.checkEmptiedLocked()
	return emptied
}

func (q *Queue[T]) checkEmptiedLocked() {
	if q.items == 0 && q.emptied != nil {
		close(q.emptied)
		q.emptied = nil
	}
}
