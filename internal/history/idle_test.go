package history_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/history"
)

// A countingSession counts reads.
type countingSession struct {
	broker.HistorySession
	reads atomic.Int64
}

func (s *countingSession) Read(ctx context.Context, q broker.Query) (broker.Page, error) {
	s.reads.Add(1)
	return s.HistorySession.Read(ctx, q)
}

// TestSequencer_ReadsIdleTopic waits for an hour, in which nothing is published.
func TestSequencer_ReadsIdleTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *history.Sequencer
		ready := make(chan struct{}) // closed when s is set
		node := &countingSession{HistorySession: memory.NewBroker().ConnectHistory(ignoringHandler(), broker.HistoryHandler{
			Published: func(string, broker.Publication) {}, Following: func(string) { <-ready; s.Following() },
		})}
		defer func() { require.NoError(t, node.Close(t.Context())) }()
		s = history.NewSequencer(node, "news", broker.Retention{Messages: 10}, history.Sink{})
		close(ready)
		time.Sleep(time.Hour)
		s.Close()
		reads := node.reads.Load()
		assert.InDelta(t, 4+3600/120, reads, 10, "after 10, 20, 40, 80 and then every 120 seconds, on average")
		time.Sleep(time.Hour)
		assert.Equal(t, reads, node.reads.Load())
	})
}
