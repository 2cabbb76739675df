package memory

import (
	"context"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/history"
)

var _ broker.HistoryBroker = (*Broker)(nil)

// A historySession is a node with histories. Functions of the two handlers run on separate queues.
type historySession struct {
	*session
	*history.Node
}

// ConnectHistory adds a node that also keeps the publications of topics. Histories are kept as long
// as the broker exists.
func (b *Broker) ConnectHistory(handler broker.Handler, historyHandler broker.HistoryHandler) broker.HistorySession {
	return historySession{session: b.connect(handler), Node: b.histories.Connect(historyHandler)}
}

func (s historySession) Close(ctx context.Context) error {
	return errors.Join(s.session.Close(ctx), s.Node.Close(ctx))
}
