//go:build !js

package routertest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
)

// A losingBroker reports a loss to each node.
type losingBroker struct{ broker.HistoryBroker }

func (b losingBroker) ConnectHistory(h broker.Callbacks, hh broker.HistoryCallbacks) broker.HistoryNode {
	h.MessagesLost("clock", 3)
	return b.HistoryBroker.ConnectHistory(h, hh)
}

// A failingTB collects the failures of a cluster.
type failingTB struct {
	testing.TB

	failures []string
}

func (f *failingTB) Errorf(format string, args ...any) {
	f.failures = append(f.failures, fmt.Sprintf(format, args...))
}

type emptyApp struct{ http.Handler }

func (emptyApp) Shutdown(context.Context) error { return nil }

func TestCluster_ReportsLossOfNodeWithoutFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &failingTB{TB: t}
		c := NewCluster(tb, func(broker.HistoryBroker) App { return emptyApp{http.NotFoundHandler()} }, nil)
		lost := 0
		node := observedBroker{losingBroker{c.Store.Node("node9")}, c, "node9"}.Connect(broker.Callbacks{MessagesLost: func(string, int) { lost++ }})
		require.NoError(t, node.Close(t.Context()))
		assert.Equal(t, 1, lost, "the node is notified, too")
		require.Len(t, tb.failures, 1)
		assert.Contains(t, tb.failures[0], `node9: topic "clock": the store has reported 3 lost messages`)
	})
}
