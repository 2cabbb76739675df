package brokertest_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

func brokenPositions() map[string]brokenHistory {
	return map[string]brokenHistory{
		"skips an offset":      {mapOffsets(func(n uint64) uint64 { return n + n/50 }), "gapless offsets"},
		"uses an offset twice": {mapOffsets(func(n uint64) uint64 { return n - n/50 }), "gapless offsets"},
		"begins at 1":          {mapOffsets(func(n uint64) uint64 { return n + 1 }), "first position"},
		"has no first position": {pageDefect(func(_ broker.Query, p *broker.Page) {
			if p.Position.Offset == 0 {
				p.Position = broker.Position{}
			}
		}), "first position"},
		"begins an epoch when read": {pageDefect(func(_ broker.Query, p *broker.Page) { p.Position.Epoch = rand.Text() }), "first position"},
		"begins an epoch when published": {pageDefect(func(_ broker.Query, p *broker.Page) {
			if p.Position.Offset == 0 {
				p.Position.Epoch = "unused"
			}
		}), "first publication"},
		"always has one epoch": {historyDefect{node: func(o *override) {
			o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
				result, err := o.HistoryNode.Append(ctx, a)
				result.Position.Epoch = "epoch"
				return result, err
			}
			changePage(o, func(_ broker.Query, p *broker.Page) { p.Position.Epoch = "epoch" })
		}}, "forgotten topic"},
		"does not know where an epoch ended": {pageDefect(func(_ broker.Query, p *broker.Page) { p.Previous = broker.Position{} }), "forgotten topic"},
		"drops metadata with publications": {pageDefect(func(q broker.Query, p *broker.Page) {
			if q.Limit > 0 && len(p.Publications) == 0 {
				p.Position = broker.Position{Epoch: rand.Text()}
			}
		}), "metadata outlives publications"},
		"ends an epoch that is only read": {historyDefect{node: func(o *override) {
			first := map[string]time.Time{}
			changePage(o, func(q broker.Query, p *broker.Page) {
				if first[q.Topic].IsZero() {
					first[q.Topic] = time.Now()
				}
				if time.Since(first[q.Topic]) > 26*time.Hour {
					p.Position = broker.Position{Epoch: "other"}
				}
			})
		}}, "metadata is kept by reads"},
		"has retention numbers in its keys": {historyDefect{node: func(o *override) {
			o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
				a.Topic += fmt.Sprint(a.Retention)
				return o.HistoryNode.Append(ctx, a)
			}
			o.read = func(ctx context.Context, q broker.Query) (broker.Page, error) {
				q.Topic += fmt.Sprint(q.Retention)
				return o.HistoryNode.Read(ctx, q)
			}
		}}, "retention changes"},
		"confuses topics": {historyDefect{node: func(o *override) {
			o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
				a.Topic = a.Topic[:min(len(a.Topic), 300)]
				return o.HistoryNode.Append(ctx, a)
			}
		}}, "histories are separate"},
		"reverses concurrent calls": {historyDefect{node: func(o *override) {
			var mu sync.Mutex
			var positions []broker.Position
			o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
				time.Sleep(time.Millisecond) // concurrent calls meet here
				result, err := o.HistoryNode.Append(ctx, a)
				mu.Lock()
				defer mu.Unlock()
				if positions = append(positions, result.Position); len(positions) > 5 {
					result.Position = positions[len(positions)-2]
				}
				return result, err
			}
		}}, "one order"},
	}
}

func brokenKeys() map[string]brokenHistory {
	return map[string]brokenHistory{
		"forgets keys": {changeAppend(func(a *broker.Append) { a.IdempotencyKey = "" }), "duplicate"},
		"forgets keys when concurrent": {historyDefect{node: func(o *override) {
			known := map[string]broker.Appended{}
			var mu sync.Mutex
			o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
				mu.Lock()
				result, ok := known[a.Topic+a.IdempotencyKey]
				mu.Unlock()
				if ok {
					result.Duplicate = true
					return result, nil
				}
				time.Sleep(time.Millisecond) // between the check and the Append
				key := a.IdempotencyKey
				a.IdempotencyKey = ""
				result, err := o.HistoryNode.Append(ctx, a)
				mu.Lock()
				defer mu.Unlock()
				known[a.Topic+key] = result
				return result, err
			}
		}}, "concurrent duplicates"},
		"shares keys between topics": {historyDefect{node: func(o *override) {
			known := map[string]broker.Appended{}
			o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
				if result, ok := known[a.IdempotencyKey]; ok && a.IdempotencyKey != "" {
					result.Duplicate = true
					return result, nil
				}
				result, err := o.HistoryNode.Append(ctx, a)
				known[a.IdempotencyKey] = result
				return result, err
			}
		}}, "duplicate"},
		"forgets a key with its publication": {historyDefect{node: func(o *override) {
			o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
				if a.IdempotencyKey != "" {
					stored := o.history(a.Topic)
					if len(stored) > 0 && stored[0].Position.Offset > 1 {
						a.IdempotencyKey += "forgotten"
					}
				}
				return o.HistoryNode.Append(ctx, a)
			}
		}}, "key outlives publication"},
		"never forgets a key": {historyDefect{node: func(o *override) {
			known := map[string]broker.Appended{}
			o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
				if result, ok := known[a.Topic+a.IdempotencyKey]; ok && a.IdempotencyKey != "" {
					result.Duplicate = true
					return result, nil
				}
				result, err := o.HistoryNode.Append(ctx, a)
				known[a.Topic+a.IdempotencyKey] = result
				return result, err
			}
		}}, "key expires"},
		"truncates keys": {changeAppend(func(a *broker.Append) {
			a.IdempotencyKey = a.IdempotencyKey[:min(len(a.IdempotencyKey), 1)]
		}), "history packets"},
	}
}

func brokenRetentions() map[string]brokenHistory {
	return map[string]brokenHistory{
		"keeps everything": {changeAppend(func(a *broker.Append) { a.Retention.Messages = 1 << 20 }), "retention by messages"},
		"keeps too few":    {changeAppend(func(a *broker.Append) { a.Retention.Messages-- }), "retention by messages"},
		"ignores bytes":    {changeAppend(func(a *broker.Append) { a.Retention.Bytes = 0 }), "retention by bytes"},
		"ignores the age":  {changeQuery(func(q *broker.Query) { q.Retention.Age = 100 * time.Hour }), "retention by age"},
		"deletes when read": {historyDefect{node: func(o *override) {
			deleted := uint64(0)
			changePage(o, func(q broker.Query, page *broker.Page) {
				if q.Retention.Messages == 1 {
					deleted = page.Position.Offset - 1
				}
				page.Publications = slices.DeleteFunc(page.Publications, func(p broker.Publication) bool { return p.Position.Offset <= deleted })
			})
		}}, "reads delete nothing"},
	}
}

func brokenReads() map[string]brokenHistory {
	return map[string]brokenHistory{
		"includes After":    {changeQuery(func(q *broker.Query) { q.After = max(q.After, 1) - 1 }), "pages"},
		"includes Before":   {changeQuery(func(q *broker.Query) { q.Before += min(q.Before, 1) }), "pages"},
		"ignores Before":    {changeQuery(func(q *broker.Query) { q.Before = 0 }), "pages"},
		"ignores Backward":  {changeQuery(func(q *broker.Query) { q.Backward = false }), "pages"},
		"ignores the limit": {changeQuery(func(q *broker.Query) { q.Limit = 1000 }), "pages"},
		"returns descending pages": {pageDefect(func(q broker.Query, p *broker.Page) {
			if q.Backward {
				slices.Reverse(p.Publications)
			}
		}), "pages"},
		"omits a publication": {pageDefect(func(_ broker.Query, p *broker.Page) {
			if len(p.Publications) > 3 {
				p.Publications = slices.Delete(p.Publications, 1, 2)
			}
		}), "pages"},
		"reads a replica": {historyDefect{node: func(o *override) {
			previous := map[string]broker.Page{}
			changePage(o, func(q broker.Query, p *broker.Page) {
				if old, ok := previous[q.Topic]; ok {
					previous[q.Topic], *p = *p, old
				} else {
					previous[q.Topic] = *p
				}
			})
		}}, "current position"},
		"truncates packets": {changeAppend(func(a *broker.Append) { a.Packet = a.Packet[:min(len(a.Packet), 1<<16)] }), "history packets"},
	}
}

func brokenFollowers() map[string]brokenHistory {
	return map[string]brokenHistory{
		"loses a publication": {deliver(func(next func(string, broker.Publication)) func(string, broker.Publication) {
			lose := everyNth(3)
			return func(topic string, p broker.Publication) {
				if !lose() {
					next(topic, p)
				}
			}
		}), "publication reaches followers"},
		"delivers twice": {deliver(func(next func(string, broker.Publication)) func(string, broker.Publication) {
			return func(topic string, p broker.Publication) { next(topic, p); next(topic, p) }
		}), "follow again"},
		"delivers out of order": {deliver(func(next func(string, broker.Publication)) func(string, broker.Publication) {
			hold := everyNth(7)
			var held []func()
			return func(topic string, p broker.Publication) {
				if hold() {
					held = append(held, func() { next(topic, p) })
					return
				}
				next(topic, p)
				if len(held) > 0 {
					held[0]()
					held = held[1:]
				}
			}
		}), "one order"},
		"delivers without the key": {deliver(func(next func(string, broker.Publication)) func(string, broker.Publication) {
			return func(topic string, p broker.Publication) {
				p.StateKey = ""
				next(topic, p)
			}
		}), "publication reaches followers"},
		"reports Following early": {historyDefect{node: func(o *override) {
			follow := o.HistoryNode.Follow
			o.follow = func(topic string) {
				follow(topic) // Following is called at once
				o.HistoryNode.Unfollow(topic)
				time.AfterFunc(time.Second, func() { follow(topic) })
			}
		}}, "following means delivered"},
		"reports Following once": {historyDefect{handler: func(h *broker.HistoryCallbacks) {
			next, called := h.Following, map[string]bool{}
			h.Following = func(topic string) {
				if !called[topic] {
					called[topic] = true
					next(topic)
				}
			}
		}}, "follow again"},
		"ignores Unfollow": {historyDefect{node: func(o *override) { o.end = func(string) {} }}, "unfollow"},
		"publishes after Close": {deliver(func(next func(string, broker.Publication)) func(string, broker.Publication) {
			return func(topic string, p broker.Publication) {
				time.AfterFunc(time.Duration(p.Position.Offset)*time.Millisecond, func() { next(topic, p) })
			}
		}), "nothing is published after close"},
		"ignores the context": {historyDefect{node: func(o *override) {
			o.read = func(_ context.Context, q broker.Query) (broker.Page, error) {
				return o.HistoryNode.Read(context.Background(), q)
			}
		}}, "done context"},
		"stores in spite of the context": {historyDefect{node: func(o *override) {
			o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
				result, err := o.HistoryNode.Append(context.Background(), a)
				return result, errors.Join(err, ctx.Err())
			}
		}}, "done context"},
		"ignores Close": {historyDefect{node: func(o *override) { o.close = func(context.Context) error { return nil } }}, "closed history node"},
	}
}

// changeOutcome changes the results of Append.
func changeOutcome(change func(a broker.Append, result *broker.Appended, err error) error) historyDefect {
	return historyDefect{node: func(o *override) {
		o.append = func(ctx context.Context, a broker.Append) (broker.Appended, error) {
			result, err := o.HistoryNode.Append(ctx, a)
			return result, change(a, &result, err)
		}
	}}
}

func brokenOutcomes() map[string]brokenHistory {
	return map[string]brokenHistory{
		"hides an unknown outcome": {changeOutcome(func(_ broker.Append, _ *broker.Appended, err error) error {
			if errors.CodeOf(err) == errors.OutcomeUnknown {
				return errors.Errorf(errors.Unavailable, "connection lost")
			}
			return err
		}), "outcome is true"},
		"hides an error":          {changeOutcome(func(broker.Append, *broker.Appended, error) error { return nil }), "outcome is true"},
		"repeats without the key": {changeAppend(func(a *broker.Append) { a.IdempotencyKey = "" }), "outcome is true"},
		"hides an interruption": {historyDefect{handler: func(h *broker.HistoryCallbacks) {
			next, called := h.Following, false
			h.Following = func(topic string) {
				if !called {
					called = true
					next(topic)
				}
			}
		}}, "outcome is true"},
		"delivers what is not stored": {deliver(func(next func(string, broker.Publication)) func(string, broker.Publication) {
			return func(topic string, p broker.Publication) {
				if p.Position.Offset%50 == 0 {
					p.Packet = []byte("0 0")
				}
				next(topic, p)
			}
		}), "outcome is true"},
	}
}
