package sequencer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/sleep"
)

// A Reader reads the store for the Sequencers of one node. Topics that have to be read while a call is in
// flight share the next one: first their positions are read, and then the publications that their Sequencers
// lack. It also compares idle topics with the store, all that are due at about the same time together.
//
// Its goroutine exists only while topics have to be read, and its timer while there are Sequencers. A
// Sequencer's lock is acquired before the Reader's.
type Reader struct {
	histories   broker.Histories
	recentBytes atomic.Int64 // see recent.go

	mu         sync.Mutex
	sequencers map[*Sequencer]struct{}
	sweep      *time.Timer
	waiting    []*Sequencer // each once
	running    bool

	// Topics that could not be read, and wait for the timer.
	failed   []*Sequencer
	retry    *time.Timer
	backoff  sleep.Backoff
	retrying bool // they are among those that wait to be read
}

// Limits of a Reader.
const (
	sweepInterval    = minIdleCheck / 2 // between two looks for idle topics that are due
	readTimeout      = 5 * time.Second  // of a call for several topics: one that hangs must not delay others for long
	maxBatchMessages = 16 * pageSize
	maxBatchBytes    = 1 << 20
)

// NewReader returns a Reader of a node's histories.
func NewReader(histories broker.Histories) *Reader {
	return &Reader{histories: histories, sequencers: map[*Sequencer]struct{}{}}
}

// register begins to compare a topic when it is idle.
func (r *Reader) register(s *Sequencer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sequencers[s] = struct{}{}
	if len(r.sequencers) == 1 {
		setTimer(&r.sweep, random.N(sweepInterval), r.compareIdle)
	}
}

// unregister ends that.
func (r *Reader) unregister(s *Sequencer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sequencers, s)
	if len(r.sequencers) == 0 {
		r.sweep.Stop()
	}
}

// compareIdle reads the topics that have been idle for long enough, if one of them has been for its whole
// time: the others are due at half of theirs, so that all are read together and seldom.
func (r *Reader) compareIdle() {
	r.mu.Lock()
	sequencers := slices.Collect(maps.Keys(r.sequencers))
	if len(sequencers) > 0 {
		r.sweep.Reset(sweepInterval)
	}
	r.mu.Unlock()
	now := time.Now()
	if slices.ContainsFunc(sequencers, func(s *Sequencer) bool { return s.idleFor(now) >= 1 }) {
		r.add(slices.DeleteFunc(sequencers, func(s *Sequencer) bool { return s.idleFor(now) < 0.5 || !s.beginComparison() })...)
	}
}

// add reads topics as soon as possible.
func (r *Reader) add(sequencers ...*Sequencer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, sequencers...)
	if len(r.waiting) > 0 && !r.running {
		r.running = true
		go r.run()
	}
}

// run reads until nothing waits.
func (r *Reader) run() {
	for {
		r.mu.Lock()
		batch, retrying := r.waiting, r.retrying
		r.waiting, r.retrying = nil, false
		r.running = len(batch) > 0
		r.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		r.read(batch)
		if retrying {
			r.endRetry()
		}
	}
}

// read reads some topics.
func (r *Reader) read(batch []*Sequencer) {
	reads := make([]*sequencerRead, 0, len(batch))
	for _, s := range batch {
		if read := s.beginRead(); read != nil {
			reads = append(reads, read)
		}
	}
	r.readPositions(reads)
	reads = slices.DeleteFunc(reads, func(read *sequencerRead) bool { return read.query.Limit == 0 })
	r.readPages(reads)
}

// readPositions reads the topics of which only the position is needed. Those that lack publications need
// pages after that.
func (r *Reader) readPositions(reads []*sequencerRead) {
	reads = slices.DeleteFunc(slices.Clone(reads), func(read *sequencerRead) bool { return read.query.Limit > 0 })
	pages := r.readAll(reads, 0, 0)
	var more []*Sequencer
	for i, read := range reads {
		switch page := pages[i]; {
		case page.Err != nil:
			r.fail(read.s)
		case read.lacks(page.Page):
			read.query.Limit = pageSize
		case read.s.endRead(read, page.Page):
			more = append(more, read.s)
		}
	}
	r.add(more...)
}

// readPages reads topics whose Sequencers lack publications. A page that does not fit into the batch is read
// by itself.
func (r *Reader) readPages(reads []*sequencerRead) {
	pages := r.readAll(reads, maxBatchMessages, maxBatchBytes)
	for i, read := range reads {
		page := pages[i]
		if page.Omitted {
			page.Page, page.Err = r.readOne(read)
		}
		switch {
		case page.Err != nil:
			r.fail(read.s)
		case read.s.endRead(read, page.Page):
			r.add(read.s)
		}
	}
}

// readAll returns a page for each topic.
func (r *Reader) readAll(reads []*sequencerRead, maxMessages, maxBytes int) []broker.BatchPage {
	if len(reads) == 0 {
		return nil
	}
	b := broker.Batch{Topics: make([]broker.TopicQuery, len(reads)), MaxMessages: maxMessages, MaxBytes: maxBytes}
	for i, read := range reads {
		b.Topics[i] = read.query
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	pages, err := r.histories.ReadAll(ctx, b)
	if err != nil {
		pages = make([]broker.BatchPage, len(reads))
		for i := range pages {
			pages[i].Err = err
		}
	}
	return pages
}

func (r *Reader) readOne(read *sequencerRead) (broker.Page, error) {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	q := read.query
	return r.histories.Read(ctx, broker.Query{Topic: q.Topic, Retention: q.Retention, After: q.After, Limit: q.Limit})
}

// fail reads a topic again with the others that could not be read, after a time that grows until all of them
// can.
func (r *Reader) fail(s *Sequencer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, s)
	if len(r.failed) > 1 {
		return
	}
	setTimer(&r.retry, r.backoff.Next(), r.readFailed)
}

// readFailed reads again what could not be read.
func (r *Reader) readFailed() {
	r.mu.Lock()
	failed := r.failed
	r.failed, r.retrying = nil, true
	r.mu.Unlock()
	r.add(failed...)
}

// endRetry begins again with the shortest time if all that was read again could be read.
func (r *Reader) endRetry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failed) == 0 {
		r.backoff.Reset()
	}
}
