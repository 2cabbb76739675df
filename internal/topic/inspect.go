package topic

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/topicname"
)

// List returns topics whose names have a prefix and follow after, sorted by name, at most limit of
// them. more is true if there are others. It holds the lock of one shard at a time, and lets other
// goroutines run in between.
func (ts *Topics) List(prefix, after string, limit int) (found []host.Topic, more bool) {
	var first []*Topic // at most limit+1, by name
	for i := range ts.shards {
		for _, t := range ts.shards[i].matching(prefix, after) {
			at, _ := slices.BinarySearchFunc(first, t.Name, func(t *Topic, name string) int { return strings.Compare(t.Name, name) })
			if at > limit {
				continue
			}
			if first = slices.Insert(first, at, t); len(first) > limit+1 {
				first = first[:limit+1]
			}
		}
		runtime.Gosched()
	}
	if more = len(first) > limit; more {
		first = first[:limit]
	}
	for _, t := range first {
		d := ts.Describe(t)
		d.Members = ts.MemberCount(t.Name)
		found = append(found, d)
	}
	return found, more
}

// matching returns the topics of a shard whose names have a prefix and follow after. Those of the
// router itself have names that no application uses.
func (s *topicShard) matching(prefix, after string) (found []*Topic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range maps.Values(s.topics) {
		if strings.HasPrefix(t.Name, prefix) && t.Name > after && topicname.Check(t.Name) == nil {
			found = append(found, t)
		}
	}
	return found
}

// Describe returns what is known of a topic, without its members. It needs no lock, and may be
// called with that of a connection.
func (ts *Topics) Describe(t *Topic) host.Topic {
	d := host.Topic{Name: t.Name, Pattern: t.Pattern.Text}
	s := &ts.shards[t.shard]
	s.mu.Lock()
	d.Subscribers = int(t.subscriptions)
	s.mu.Unlock()
	if t.history != nil {
		d.Position, _ = t.history.sequencer.Position()
	}
	return d
}

// latestStored bounds how many publications are read to show their size.
const latestStored = 100

// Stored returns what the history of a topic stores: the zero Stored without a history.
func (ts *Topics) Stored(ctx context.Context, name string) (s host.Stored, err error) {
	p := ts.PatternOf(name)
	if ts.histories == nil || !p.HasHistory() {
		return s, nil
	}
	q := broker.Query{Topic: name, Retention: p.Retention, Limit: latestStored, Backward: true}
	latest, err := ts.histories.Read(ctx, q)
	if err != nil || len(latest.Publications) == 0 {
		return s, err
	}
	q.Limit, q.Backward = 1, false
	oldest, err := ts.histories.Read(ctx, q)
	if err != nil || len(oldest.Publications) == 0 {
		return s, err
	}
	for _, p := range latest.Publications {
		s.LatestBytes += int64(len(p.Packet))
	}
	s.Latest = len(latest.Publications)
	s.Messages = oldest.Position.Offset - oldest.Publications[0].Position.Offset + 1
	return s, nil
}

// ObserveDeliveries sets what is called for each publication that is delivered to subscribers of this
// node; nil ends that. It may still be called for a moment.
func (ts *Topics) ObserveDeliveries(observe func(host.Delivery)) {
	if observe == nil {
		ts.observer.Store(nil)
		return
	}
	ts.observer.Store(&observe)
}

func deliveryOf(t *Topic, p *envelope.Publication, at broker.Position, receivers int) host.Delivery {
	d := host.Delivery{Topic: t.Name, Offset: at.Offset, Receivers: receivers}
	if frame := p.Frame(envelope.JSON); frame != nil {
		d.Message = frame.Text()
	}
	return d
}
