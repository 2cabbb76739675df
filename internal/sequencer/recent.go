package sequencer

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/penstock-go/penstock/broker"
)

// This file has what clients share that return to a topic at about the same time, after a deploy for example:
// what one of them has missed is kept for a moment, with what is handed over meanwhile, and the others need no
// call of the store.

// Bounds of what is kept.
const (
	maxRecentTime  = 5 * time.Second
	maxRecentBytes = 16 << 20 // of all topics of a node; each publication counts with bufferedOverhead
)

// recent has the publications after an offset up to the one that was handed over last.
type recent struct {
	after        uint64
	publications []broker.Publication // none is ever changed, since subscribers have them, too; nil if nothing is kept
	bytes        int                  // with overhead
}

// keepRecent keeps the publications after an offset up to the last one, unless more is kept already.
func (s *Sequencer) keepRecent(after uint64, publications []broker.Publication) {
	if len(publications) == 0 || s.recent.publications != nil && s.recent.after <= after {
		return
	}
	s.dropRecent()
	size := packetBytes(publications) + len(publications)*bufferedOverhead
	if !s.reader.reserveRecent(size) {
		return
	}
	s.recent = recent{after, slices.Clip(publications), size}
	setTimer(&s.recentTimer, recentTime(s.retention), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.dropRecent()
	})
}

// recentTime returns how long publications are kept, and by how much they may be older than the retention permits.
func recentTime(r broker.Retention) time.Duration {
	return min(maxRecentTime, cmp.Or(max(r.Age, 0), broker.DefaultAge)/10)
}

// continueRecent adds a publication that is handed over.
func (s *Sequencer) continueRecent(p broker.Publication) {
	if s.recent.publications == nil {
		return
	}
	size := len(p.Packet) + bufferedOverhead
	if !s.reader.reserveRecent(size) {
		s.dropRecent()
		return
	}
	p.Packet = bytes.Clone(p.Packet) // it is valid only during the call
	s.recent.publications = append(s.recent.publications, p)
	s.recent.bytes += size
}

func (s *Sequencer) dropRecent() {
	s.reader.recentBytes.Add(-int64(s.recent.bytes))
	s.recent = recent{}
}

// reserveRecent reports whether as many bytes more may be kept, and counts them if so.
func (r *Reader) reserveRecent(size int) bool {
	if r.recentBytes.Add(int64(size)) <= maxRecentBytes {
		return true
	}
	r.recentBytes.Add(-int64(size))
	return false
}

// recentPage returns the page of a query for a client with a position. It reports false if that is in the store
// alone. What the store has beyond the last publication will be handed over to all subscribers.
func (s *Sequencer) recentPage(since broker.Position, q broker.TopicQuery) (page broker.Page, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	page.Position = s.last
	switch r := &s.recent; {
	case since.Epoch != s.last.Epoch || q.After > s.last.Offset:
		return page, false
	case q.After == s.last.Offset:
		return page, true
	case r.publications == nil || q.After < r.after:
		return page, false
	default:
		missed := r.publications[q.After-r.after:]
		page.Publications = slices.Clip(missed[:min(len(missed), max(q.Limit, 0))])
		return page, true
	}
}
