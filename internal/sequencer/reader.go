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
	"github.com/penstock-go/penstock/internal/rules"
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
	backoff  rules.Backoff
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
	for i, read := range reads {
		if page := pages[i]; page.Err == nil && read.lacks(page.Page) {
			read.query.Limit = pageSize
		} else {
			r.end(read, page)
		}
	}
}

// readPages reads topics whose Sequencers lack publications. A page that does not fit into the batch is read
// by itself.
func (r *Reader) readPages(reads []*sequencerRead) {
	pages := r.readAll(reads, maxBatchMessages, maxBatchBytes)
	for i, read := range reads {
		page := pages[i]
		if page.Omitted {
			stored := read.s.log()
			page.Page, page.Err = stored.read(context.Background(), read.query.After)
		}
		r.end(read, page)
	}
}

// end reads a topic again if that is necessary.
func (r *Reader) end(read *sequencerRead, page broker.BatchPage) {
	switch {
	case page.Err != nil:
		r.fail(read.s)
	case read.s.endRead(read, page.Page):
		r.add(read.s)
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

// This file is what the Reader of the node does with a Sequencer.

// read makes the Reader read the topic, or read it once more.
func (s *Sequencer) read() {
	if s.isClosed() {
		return
	}
	s.again = true
	if !s.reading {
		s.reading = true
		s.reader.add(s)
	}
}

func (s *Sequencer) log() Log { return Log{s.reader.histories, s.topic, s.retention, readTimeout} }

// beginComparison is read for the Reader itself. It returns whether it must read the topic.
func (s *Sequencer) beginComparison() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading || s.isClosed() {
		return false
	}
	s.again, s.reading = true, true
	return true
}

// checkWhenIdle makes the Reader compare the topic with the store if nothing happens for about d: the end of
// what was published may have been lost.
func (s *Sequencer) checkWhenIdle(d time.Duration) { s.idleTime, s.idleSince = d, time.Now() }

// idleFor returns how much of the time has passed after which the topic is compared; 0 if it need not be.
func (s *Sequencer) idleFor(now time.Time) (part float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idleTime == 0 || s.reading {
		return 0
	}
	return float64(now.Sub(s.idleSince)) / float64(s.idleTime)
}

// A sequencerRead is a read of the store for a Sequencer.
type sequencerRead struct {
	s      *Sequencer
	number uint64
	query  broker.TopicQuery // without a limit, only the position is read
}

// beginRead returns what has to be read, or nil if that is nothing.
func (s *Sequencer) beginRead() *sequencerRead {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		s.reading = false
		return nil
	}
	s.again = false
	s.begun++
	read := &sequencerRead{s, s.begun, broker.TopicQuery{Topic: s.topic, Retention: s.retention, After: s.last.Offset, Epoch: s.last.Epoch}}
	if s.attached && (s.more || s.isBehind() || len(s.buffer) > 0) {
		read.query.Limit = pageSize
	}
	return read
}

// lacks reports whether the Sequencer lacks publications before a position. They follow query.After then.
func (r *sequencerRead) lacks(page broker.Page) bool {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.attached || page.Position.Epoch != s.last.Epoch || page.Position.Offset <= s.last.Offset {
		return false
	}
	r.query.After, r.query.Epoch = s.last.Offset, s.last.Epoch
	return true
}

// endRead handles a page and reports whether the topic must be read again.
func (s *Sequencer) endRead(r *sequencerRead, page broker.Page) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		s.reading = false
		return false
	}
	if page.Position.Epoch == r.query.Epoch && page.Position.Offset < r.query.After {
		s.goBack(page.Position)
	}
	more, complete := s.apply(page)
	s.more = more
	s.missing.expired = false
	s.drain()
	if complete {
		s.compared = r.number
	}
	if complete && !s.again {
		s.dropOtherEpochs()
	}
	s.reading = more || s.again || s.isBehind()
	s.checkWhenIdle(min(max(2*s.idleTime, minIdleCheck), maxIdleCheck))
	s.notify()
	return s.reading
}

// goBack continues at a position of the store below one that this node had before it asked: the store has
// lost publications without beginning an epoch, and uses their offsets again.
func (s *Sequencer) goBack(to broker.Position) {
	s.last, s.since, s.missing, s.arrived = to, 0, missing{}, broker.Position{}
	s.dropRecent()
	s.dropBuffer()
	s.sinkLost(Loss{Reset: true})
}
