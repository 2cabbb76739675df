package runs

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// A logState is what the entries of a log say together.
type logState struct {
	fence  uint64
	items  []any // nil unless they are wanted
	count  uint64
	stop   *stopRequest
	end    *End
	closed bool
	epoch  string
}

// apply adds an entry. Without a decode, items are only counted.
func (s *logState) apply(packet []byte, decode func(json.RawMessage) (any, error)) {
	e, ok := parseEntry(packet)
	if !ok || s.end != nil || e.Fence < s.fence {
		return
	}
	s.fence = e.Fence
	if e.Stop != nil && s.stop == nil {
		s.stop = e.Stop
	}
	s.end = e.End
	for i, raw := range e.Items {
		if e.First+uint64(i) != s.count { //nolint:gosec // an index
			continue // repeated after a failover
		}
		if decode != nil {
			item, err := decode(raw)
			if err != nil {
				return // the item of another version; the reader waits for the end
			}
			s.items = append(s.items, item)
		}
		s.count++
	}
}

// logOf returns the log of a run.
func (r *Runs) logOf(topic, id string) *sequencer.Log {
	return &sequencer.Log{Histories: r.config.Histories, Topic: logTopic(topic, id), Retention: r.retention(), Timeout: storeTimeout}
}

// stateOf reads the whole log of a run. Without a decode, items are only counted.
func (r *Runs) stateOf(ctx context.Context, topic, id string, decode func(json.RawMessage) (any, error)) (s logState, err error) {
	var cursor sequencer.Cursor
	var mu sync.Mutex // nothing else uses the cursor
	for again := true; again; again = cursor.IsLost() {
		cursor.Begin()
		s = logState{}
		err = r.logOf(topic, id).Run(ctx, &cursor, &mu, func(page broker.Page) bool {
			for _, p := range page.Publications {
				s.apply(p.Packet, decode)
			}
			s.closed = page.Closed
			return true
		})
	}
	s.epoch = cursor.At().Epoch
	return s, err
}
