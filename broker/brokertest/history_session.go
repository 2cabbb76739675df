package brokertest

import (
	"context"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

func unfollowEndsDelivery(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	a, b := nodes[0], nodes[1]
	topic, end, other := c.topic(), c.topic(), c.topic()
	if err := errors.Join(b.follow(topic), b.follow(end)); err != nil {
		return err
	}
	b.Unfollow(topic)
	if err := b.follow(other); err != nil { // after it, Unfollow is in effect
		return err
	}
	if err := errors.Join(a.storeAll(topic, keepAll(), "too late"), a.storeAll(end, keepAll(), "end")); err != nil {
		return err
	}
	page, err := a.history(end)
	return errors.Join(err, b.receives(end, page.Publications), b.receives(topic, nil))
}

func followAgain(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	a, b, topic := nodes[0], nodes[1], c.topic()
	calls := 0
	for range 10 {
		if err := errors.Join(b.follow(topic), b.follow(topic)); err != nil {
			return err
		}
		calls += 2
		if calls < 20 {
			b.Unfollow(topic)
		}
	}
	if err := a.storeAll(topic, keepAll(), "once"); err != nil {
		return err
	}
	page, err := a.history(topic)
	if err = errors.Join(err, b.receives(topic, page.Publications)); err != nil {
		return err
	}
	b.locked(func() {
		if b.following[topic] != calls {
			err = fmt.Errorf("calls of Following: %d, want %d", b.following[topic], calls)
		}
	})
	return err
}

func followingMeansDelivered(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	for i := range 40 {
		topic := c.topic()
		if i%2 == 0 {
			if err := nodes[0].storeAll(topic, keepAll(), "earlier"); err != nil {
				return err
			}
		}
		if err := nodes[1].follow(topic); err != nil {
			return err
		}
		if err := nodes[0].storeAll(topic, keepAll(), "1", "2"); err != nil {
			return err
		}
		page, err := nodes[0].history(topic)
		if err != nil {
			return err
		}
		if len(page.Publications) < 2 {
			return fmt.Errorf("%d publications are stored, want at least 2", len(page.Publications))
		}
		want := page.Publications[len(page.Publications)-2:]
		err = nodes[1].await("publications after Following", func() bool { return len(nodes[1].published[topic]) >= 2 })
		if err != nil {
			return err
		}
		nodes[1].locked(func() { err = comparePublications("delivered", nodes[1].published[topic], want) })
		if err != nil {
			return err
		}
	}
	return nil
}

// callAll calls each method that returns an error.
func (n *historyNode) callAll(ctx context.Context, topic string) map[string]error {
	_, appendErr := n.Append(ctx, broker.Append{Topic: topic, Retention: keepAll(), StateKey: "key"})
	_, readErr := n.Read(ctx, broker.Query{Topic: topic, Retention: keepAll(), Limit: 10})
	_, batchErr := n.ReadAll(ctx, broker.Batch{Topics: []broker.TopicQuery{{Topic: topic, Retention: keepAll(), Limit: 10}}, MaxMessages: 10, MaxBytes: 1000})
	_, stateErr := n.ReadState(ctx, broker.StateQuery{Topic: topic, Retention: keepAll()})
	_, loadErr := n.LoadValue(ctx, topic)
	_, storeErr := n.StoreValue(ctx, topic, []byte("value"), 0, time.Hour)
	_, patchErr := n.PatchValue(ctx, topic, broker.Patch{}, 0, time.Hour)
	return map[string]error{"Append": appendErr, "Read": readErr, "ReadAll": batchErr, "ReadState": stateErr, "LoadValue": loadErr, "StoreValue": storeErr, "PatchValue": patchErr}
}

func doneContextDoesNothing(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	topic := c.topic()
	if err := errors.Join(nodes[1].follow(topic), nodes[0].storeAll(topic, keepAll(), "first")); err != nil {
		return err
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancel := context.WithTimeout(context.Background(), -time.Second)
	defer cancel()
	for _, ctx := range []context.Context{canceled, expired} {
		for method, err := range nodes[0].callAll(ctx, topic) {
			if !errors.Is(err, ctx.Err()) {
				return fmt.Errorf("%s returned the code %q, want %w", method, errors.CodeOf(err), ctx.Err())
			}
			if errors.CodeOf(err) == errors.OutcomeUnknown {
				return fmt.Errorf("the outcome of %s is unknown though nothing was done", method)
			}
		}
	}
	page, err := nodes[1].history(topic)
	if err != nil {
		return err
	}
	return errors.Join(nodes[1].has(topic, "first"), nodes[1].hasNoValue(topic), nodes[1].receives(topic, page.Publications))
}

func closedHistoryNode(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	a, b, topic := nodes[0], nodes[1], c.topic()
	if err := errors.Join(b.follow(topic), a.storeAll(topic, keepAll(), "first")); err != nil {
		return err
	}
	ctx, cancel := a.timeout()
	defer cancel()
	for range 2 {
		if err := a.Close(ctx); err != nil {
			return fmt.Errorf("closing the node: %w", err)
		}
	}
	for method, err := range a.callAll(ctx, topic) {
		if errors.CodeOf(err) != errors.Unavailable {
			return fmt.Errorf("%s of a closed node returned the code %q, want UNAVAILABLE", method, errors.CodeOf(err))
		}
	}
	a.Follow(topic)
	a.Unfollow(topic)
	page, err := b.history(topic)
	if err != nil {
		return err
	}
	return errors.Join(b.has(topic, "first"), b.hasNoValue(topic), b.receives(topic, page.Publications))
}

func nothingIsPublishedAfterClose(c HistoryCluster) error {
	nodes, closeAll := c.connectNodes(2)
	defer closeAll()
	a, b, topic := nodes[0], nodes[1], c.topic()
	if err := errors.Join(b.follow(topic), a.storeAll(topic, keepAll(), numbers(200)...)); err != nil {
		return err
	}
	if err := b.await("a publication", func() bool { return len(b.published[topic]) > 0 }); err != nil {
		return err
	}
	b.Follow(c.topic())
	b.close()
	before, after := 0, 0
	b.locked(func() { before = b.calls })
	b.Follow(topic)
	if err := a.storeAll(topic, keepAll(), "after Close"); err != nil {
		return err
	}
	time.Sleep(c.QuietPeriod)
	b.locked(func() { after = b.calls })
	if after != before {
		return fmt.Errorf("%d functions of the history handler were called after Close", after-before)
	}
	return nil
}
