package memstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/memstore"
)

// benchmarkRetention bounds the histories of the benchmarks.
var benchmarkRetention = broker.Retention{Messages: 100, Age: time.Hour}

func discardPublication(string, broker.Publication) {}

// TestStore_AppendDoesNotAllocate keeps the cost of a publication at that of its packet.
func TestStore_AppendDoesNotAllocate(t *testing.T) {
	var s memstore.Store
	packet := make([]byte, 200)
	appendOne := func() {
		_, _ = s.Append(broker.Append{Topic: "news", Retention: benchmarkRetention, Packet: packet, StateKey: "key"}, discardPublication)
	}
	for range 1000 {
		appendOne()
	}
	assert.Zero(t, testing.AllocsPerRun(1000, appendOne))
	assert.Zero(t, testing.AllocsPerRun(1000, func() { s.Read(broker.Query{Topic: "news", Retention: benchmarkRetention}) }))
}
