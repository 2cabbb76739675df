package clustercost_test

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/cluster"
	"github.com/penstock-go/penstock/internal/cluster/enginetest"
)

// A cost is what was counted, or a share of it.
type cost struct {
	packets   float64 // that nodes have published
	copies    float64 // that nodes have received, including their own
	copyBytes float64 // of the copies, as the engine receives them
	calls     float64 // of the store of histories and values
}

func (c cost) plus(other cost, factor float64) cost {
	return cost{
		c.packets + factor*other.packets, c.copies + factor*other.copies,
		c.copyBytes + factor*other.copyBytes, c.calls + factor*other.calls,
	}
}

func (c cost) over(units float64) cost { return cost{}.plus(c, 1/units) }

// A meter is an engine that counts what another one carries.
type meter struct {
	*enginetest.Network

	packets, copies, copyBytes, calls atomic.Int64
}

func newMeter() *meter { return &meter{Network: enginetest.New()} }

// total returns what was counted since the beginning.
func (m *meter) total() cost {
	return cost{float64(m.packets.Load()), float64(m.copies.Load()), float64(m.copyBytes.Load()), float64(m.calls.Load())}
}

// Connect adds a node.
func (m *meter) Connect(node string, events cluster.Events) cluster.Link {
	received := events.Received
	events.Received = func(channel string, payload []byte) {
		m.copies.Add(1)
		m.copyBytes.Add(int64(len(payload)))
		received(channel, payload)
	}
	return meteredLink{m.Network.Connect(node, events), m}
}

type meteredLink struct {
	cluster.Link

	meter *meter
}

// Publish counts the messages of a batch.
func (l meteredLink) Publish(ctx context.Context, batch []*cluster.Message) {
	l.meter.packets.Add(int64(len(batch)))
	l.Link.Publish(ctx, batch)
}

// A meteredNode is a node of a meter's engine whose calls of the store are counted.
type meteredNode struct {
	broker.Node
	broker.Histories

	closeStore func(context.Context) error
}

// Close closes both halves.
func (n meteredNode) Close(ctx context.Context) error {
	return errors.Join(n.Node.Close(ctx), n.closeStore(ctx))
}

// A meteredBroker connects nodes to the engine of a meter, and to a store.
type meteredBroker struct {
	meter *meter
	store broker.HistoryBroker
}

// Connect adds a node.
func (b meteredBroker) Connect(h broker.Callbacks) broker.Node {
	return b.ConnectHistory(h, broker.HistoryCallbacks{})
}

// ConnectHistory adds a node.
func (b meteredBroker) ConnectHistory(h broker.Callbacks, hh broker.HistoryCallbacks) broker.HistoryNode {
	stored := b.store.ConnectHistory(broker.Callbacks{}, hh)
	return meteredNode{cluster.New(b.meter).Connect(h), meteredStore{stored, b.meter}, stored.Close}
}

// A meteredStore counts calls. The others of a [broker.Histories] do not occur here.
type meteredStore struct {
	broker.Histories

	meter *meter
}

// Append counts a call.
func (s meteredStore) Append(ctx context.Context, p broker.Append) (broker.Appended, error) {
	s.meter.calls.Add(1)
	return s.Histories.Append(ctx, p)
}

// Read counts a call.
func (s meteredStore) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	s.meter.calls.Add(1)
	return s.Histories.Read(ctx, q)
}

// ReadAll counts a call.
func (s meteredStore) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	s.meter.calls.Add(1)
	return s.Histories.ReadAll(ctx, b)
}

// LoadValue counts a call.
func (s meteredStore) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	s.meter.calls.Add(1)
	return s.Histories.LoadValue(ctx, key)
}

// StoreValue counts a call.
func (s meteredStore) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	s.meter.calls.Add(1)
	return s.Histories.StoreValue(ctx, key, data, version, lifetime)
}

// PatchValue counts a call.
func (s meteredStore) PatchValue(ctx context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	s.meter.calls.Add(1)
	return s.Histories.PatchValue(ctx, key, p, version, lifetime)
}
