package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/broker/brokertest"
	"github.com/penstock-go/penstock/errors"
)

func TestBroker_KeepsContract(t *testing.T) {
	for _, c := range brokertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, brokertest.Cluster{Connect: memory.NewBroker().Connect, Timeout: time.Second, QuietPeriod: time.Second})
			})
		})
	}
}

// historyCluster returns a cluster without faults, for a bubble.
func historyCluster() brokertest.HistoryCluster {
	return brokertest.HistoryCluster{
		Connect: memory.NewBroker().ConnectHistory, Timeout: time.Second, QuietPeriod: time.Second,
		Age: time.Minute, IdempotencyTime: broker.IdempotencyTime, MetadataAge: 24 * time.Hour,
	}
}

func TestBroker_KeepsContractOfHistories(t *testing.T) {
	for _, c := range brokertest.HistoryCases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(t, historyCluster()) })
		})
	}
}

func TestBroker_HistoriesHaveMaximum(t *testing.T) {
	assert.PanicsWithValue(t, "memory: maxHistoryBytes is 0; it must be at least 1", func() { memory.NewBrokerMaxHistoryBytes(0) })
	s := memory.NewBrokerMaxHistoryBytes(10_000).ConnectHistory(broker.Callbacks{}, broker.HistoryCallbacks{})
	appendPacket := func(bytes int) error {
		_, err := s.Append(t.Context(), broker.Append{Topic: "news", Packet: make([]byte, bytes)})
		return err
	}
	require.NoError(t, appendPacket(5000))
	assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(appendPacket(15_000)))
	require.NoError(t, appendPacket(5000), "it replaces the first one")
	_, err := s.StoreValue(t.Context(), "session", make([]byte, 5000), 0, time.Minute)
	assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), "values use the same memory")
}

// TestBroker_HandlersMayBeNil has no function that the events could be passed to.
func TestBroker_HandlersMayBeNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connect := memory.NewBroker().ConnectHistory
		a, b := connect(broker.Callbacks{}, broker.HistoryCallbacks{}), connect(broker.Callbacks{}, broker.HistoryCallbacks{})
		b.Subscribe("news")
		b.Track("news")
		b.Follow("history")
		require.NoError(t, a.Publish("news", []byte("hello")))
		_, err := a.Append(t.Context(), broker.Append{Topic: "history", Packet: []byte("hello")})
		require.NoError(t, err)
		a.Join("news", "ann", "")
		require.NoError(t, a.Close(t.Context()))
		synctest.Wait()
		require.NoError(t, b.Close(t.Context()))
	})
}
