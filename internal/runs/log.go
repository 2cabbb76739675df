package runs

import (
	"context"
	"encoding/json"

	"github.com/penstock-go/penstock/broker"
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
	offset uint64 // of the last entry
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

// logPage is how many entries are read at once.
const logPage = 256

// readLog reads the log of a run until it has no more entries, and hands each over. It returns the last page.
func (r *Runs) readLog(ctx context.Context, topic, id string, each func(broker.Publication)) (page broker.Page, err error) {
	q := broker.Query{Topic: logTopic(topic, id), Retention: r.retention(), Limit: logPage}
	for {
		err = retry(ctx, func(ctx context.Context) (err error) {
			page, err = r.config.Histories.Read(ctx, q)
			return err
		})
		if err != nil {
			return page, err
		}
		for _, p := range page.Publications {
			each(p)
			q.After = p.Position.Offset
		}
		if len(page.Publications) < logPage {
			return page, nil
		}
	}
}

// stateOf reads the whole log of a run. Without a decode, items are only counted.
func (r *Runs) stateOf(ctx context.Context, topic, id string, decode func(json.RawMessage) (any, error)) (s logState, err error) {
	page, err := r.readLog(ctx, topic, id, func(p broker.Publication) { s.apply(p.Packet, decode) })
	s.epoch, s.offset, s.closed = page.Position.Epoch, page.Position.Offset, page.Closed
	return s, err
}
