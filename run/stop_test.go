package run_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// A lateBroker confirms that a node follows a log a second after it has begun to, as when a connection to Redis is
// being replaced.
type lateBroker struct{ broker.HistoryBroker }

func (b lateBroker) ConnectHistory(h broker.Callbacks, hh broker.HistoryCallbacks) broker.HistoryNode {
	following, published := hh.Following, hh.Published
	var confirmed sync.Map
	hh.Published = func(topic string, p broker.Publication) {
		if _, ok := confirmed.Load(topic); ok {
			published(topic, p)
		}
	}
	hh.Following = func(topic string) {
		time.AfterFunc(time.Second, func() {
			confirmed.Store(topic, true)
			following(topic)
		})
	}
	return b.HistoryBroker.ConnectHistory(h, hh)
}

func TestStop_BeforeTheOwnerFollowsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		owner, other := router.New(&router.Options{Broker: lateBroker{b}}), router.New(&router.Options{Broker: b})
		rs, stopper := run.New[token](owner, "answer/{chat}", nil), run.New[token](other, "answer/{chat}", nil)
		info, err := rs.Start(t.Context(), "answer/1", nil, wait)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		info, err = stopper.Stop(ctx, "answer/1", info.ID, "ann")
		require.NoError(t, err)
		assert.Equal(t, run.Stopped, info.State)
		require.NoError(t, owner.Shutdown(t.Context()))
		require.NoError(t, other.Shutdown(t.Context()))
	})
}
