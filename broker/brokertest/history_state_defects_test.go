package brokertest_test

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/penstock-go/penstock/broker"
)

func brokenStates() map[string]brokenHistory {
	return map[string]brokenHistory{
		"keeps removed keys": {changeAppend(func(a *broker.Append) { a.Removed = false }), "state"},
		"drops state with publications": {changeState(func(o *override, q broker.StateQuery, s *broker.StatePart) {
			stored := o.history(q.Topic)
			s.Publications = slices.DeleteFunc(s.Publications, func(p broker.Publication) bool {
				return len(stored) == 0 || p.Position.Offset < stored[0].Position.Offset
			})
		}), "state"},
		"never expires state": {historyDefect{node: func(o *override) {
			o.state = func(ctx context.Context, q broker.StateQuery) (broker.StatePart, error) {
				q.Retention.Age = 100 * time.Hour
				return o.HistoryNode.ReadState(ctx, q)
			}
			o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
				a.Retention.Age = 100 * time.Hour
				return o.HistoryNode.Append(ctx, a)
			}
		}}, "state expires"},
		"returns state with a later position": {changeState(func(_ *override, _ broker.StateQuery, s *broker.StatePart) {
			if s.Position.Offset == 150 {
				s.Publications = nil
			}
		}), "state of one moment"},
		"ignores the length of parts": {changeStateQuery(func(q *broker.StateQuery) { q.MaxBytes = 1 << 30 }), "state in parts"},
		"ends a state early": {changeState(func(_ *override, q broker.StateQuery, s *broker.StatePart) {
			if q.Cursor != "" {
				s.Next = ""
			}
		}), "state in parts"},
		"loses the last key of a part": {changeState(func(_ *override, _ broker.StateQuery, s *broker.StatePart) {
			if s.Next != "" {
				s.Publications = s.Publications[:len(s.Publications)-1]
			}
		}), "state in parts"},
		"loses a key when the one before changes": {historyDefect{node: func(o *override) {
			// As a store does that continues at a number of keys instead of a key.
			o.state = func(ctx context.Context, q broker.StateQuery) (part broker.StatePart, err error) {
				skip, _ := strconv.Atoi(q.Cursor)
				q.Cursor, q.MaxBytes = "", 1<<30
				if part, err = o.HistoryNode.ReadState(ctx, q); err != nil {
					return part, err
				}
				slices.SortFunc(part.Publications, func(a, b broker.Publication) int { return int(a.Position.Offset) - int(b.Position.Offset) })
				if end := skip + 20; end < len(part.Publications) {
					part.Publications, part.Next = part.Publications[:end], strconv.Itoa(end)
				}
				part.Publications = part.Publications[min(skip, len(part.Publications)):]
				return part, nil
			}
		}}, "state in parts"},
		"reads all parts as of the first": {historyDefect{node: func(o *override) {
			first := map[string]broker.StatePart{}
			o.state = func(ctx context.Context, q broker.StateQuery) (broker.StatePart, error) {
				part, err := o.HistoryNode.ReadState(ctx, q)
				if q.Cursor == "" {
					first[q.Topic] = part
				}
				part.Position = first[q.Topic].Position
				return part, err
			}
		}}, "state in parts"},
		"returns keys that were removed since the first part": {historyDefect{node: func(o *override) {
			all := map[string][]broker.Publication{}
			o.state = func(ctx context.Context, q broker.StateQuery) (broker.StatePart, error) {
				part, err := o.HistoryNode.ReadState(ctx, q)
				if q.Cursor == "" {
					q.MaxBytes = 1 << 30
					whole, _ := o.HistoryNode.ReadState(ctx, q)
					all[q.Topic] = whole.Publications
				} else if known := all[q.Topic]; len(known) > 0 && q.MaxBytes < 1<<30 {
					oldest := slices.MinFunc(known, func(a, b broker.Publication) int { return int(a.Position.Offset) - int(b.Position.Offset) })
					part.Publications = append(part.Publications, oldest)
				}
				return part, err
			}
		}}, "state in parts"},
		"has cursors of one node": {historyDefect{node: func(o *override) {
			known := map[string]string{}
			o.state = func(ctx context.Context, q broker.StateQuery) (broker.StatePart, error) {
				q.Cursor = known[q.Cursor]
				part, err := o.HistoryNode.ReadState(ctx, q)
				if part.Next != "" {
					known["of this node "+part.Next] = part.Next
					part.Next = "of this node " + part.Next
				}
				return part, err
			}
		}}, "state in parts"},
		"reads the oldest keys first": {historyDefect{node: func(o *override) {
			o.state = func(ctx context.Context, q broker.StateQuery) (part broker.StatePart, err error) {
				after, _ := strconv.ParseUint(q.Cursor, 10, 64)
				q.Cursor, q.MaxBytes = "", 1<<30
				if part, err = o.HistoryNode.ReadState(ctx, q); err != nil {
					return part, err
				}
				slices.SortFunc(part.Publications, func(a, b broker.Publication) int { return int(a.Position.Offset) - int(b.Position.Offset) })
				part.Publications = slices.DeleteFunc(part.Publications, func(p broker.Publication) bool { return p.Position.Offset <= after })
				if len(part.Publications) > 20 {
					part.Publications = part.Publications[:20]
					part.Next = strconv.FormatUint(part.Publications[19].Position.Offset, 10)
				}
				return part, nil
			}
		}}, "state parts end"},
	}
}
