package memstore_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/memstore"
)

// benchmarkRetention bounds the histories of the benchmarks.
var benchmarkRetention = broker.Retention{Messages: 100, Age: time.Hour}

func discardPublication(string, broker.Publication) {}

func BenchmarkStore_Append(b *testing.B) {
	packet := make([]byte, 200)
	for _, topics := range []int{1, 1000} {
		names := make([]string, topics)
		for i := range names {
			names[i] = "topic " + strconv.Itoa(i)
		}
		b.Run(strconv.Itoa(topics)+" topics", func(b *testing.B) {
			var s memstore.Store
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				_, _ = s.Append(broker.Append{Topic: names[i%topics], Retention: benchmarkRetention, Packet: packet}, discardPublication)
			}
		})
		b.Run(strconv.Itoa(topics)+" topics, parallel", func(b *testing.B) {
			var s memstore.Store
			var next atomic.Uint64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					name := names[int(next.Add(1))%topics]
					_, _ = s.Append(broker.Append{Topic: name, Retention: benchmarkRetention, Packet: packet}, discardPublication)
				}
			})
		})
	}
	b.Run("state", func(b *testing.B) {
		var s memstore.Store
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			_, _ = s.Append(broker.Append{Topic: "prices", Retention: benchmarkRetention, Packet: packet, StateKey: strconv.Itoa(i % 100)}, discardPublication)
		}
	})
	b.Run("idempotency key", func(b *testing.B) {
		var s memstore.Store
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			_, _ = s.Append(broker.Append{Topic: "news", Retention: benchmarkRetention, Packet: packet, IdempotencyKey: strconv.Itoa(i)}, discardPublication)
		}
	})
}

func BenchmarkHub_AppendToFollowers(b *testing.B) {
	for _, followers := range []int{1, 4} {
		b.Run(strconv.Itoa(followers), func(b *testing.B) {
			var hub memstore.Hub
			var received atomic.Int64
			var publisher *memstore.Node
			for range followers {
				publisher = hub.Connect(broker.HistoryCallbacks{
					Published: func(string, broker.Publication) { received.Add(1) },
					Following: func(string) {},
				})
				publisher.Follow("news")
			}
			b.ReportAllocs()
			for b.Loop() {
				_, err := publisher.Append(b.Context(), broker.Append{Topic: "news", Retention: benchmarkRetention})
				require.NoError(b, err)
			}
		})
	}
}

func BenchmarkStore_Read(b *testing.B) {
	var s memstore.Store
	for range 100 {
		_, _ = s.Append(broker.Append{Topic: "news", Retention: benchmarkRetention, Packet: make([]byte, 200)}, discardPublication)
	}
	for _, limit := range []int{0, 3, 100} {
		b.Run(strconv.Itoa(limit), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Read(broker.Query{Topic: "news", Retention: benchmarkRetention, After: uint64(100 - limit), Limit: limit})
			}
		})
	}
}

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
