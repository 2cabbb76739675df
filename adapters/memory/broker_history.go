package memory

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/memstore"
)

var _ broker.HistoryBroker = (*Broker)(nil)

// A historyNode is a node with histories. Functions of the two handlers run on separate queues.
type historyNode struct {
	*node
	*memstore.Node
}

// ConnectHistory adds a node that also keeps the publications of topics. Histories are kept as long
// as the broker exists.
func (b *Broker) ConnectHistory(handler broker.Callbacks, historyHandler broker.HistoryCallbacks) broker.HistoryNode {
	return historyNode{node: b.connect(handler), Node: b.histories.Connect(historyHandler)}
}

func (s historyNode) Close(ctx context.Context) error {
	return errors.Join(s.node.Close(ctx), s.Node.Close(ctx))
}
