package redis

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// TestHistory_MemoryInRedis measures how much memory histories need for packets of 200 bytes. The
// maxima are those of docs/guides/recovery.md.
func TestHistory_MemoryInRedis(t *testing.T) {
	testscale.FullOnly(t, "TestHistory_RedisOutOfMemory")
	t.Parallel()
	const topics, publications, packetBytes = 300, 100, 200
	server := redistest.Start(t)
	n, admin := connectHistory(t, server.Client(t)), server.Client(t)
	used := func() int {
		info, err := admin.InfoMap(t.Context(), "memory").Result()
		require.NoError(t, err)
		bytes, err := strconv.Atoi(info["Memory"]["used_memory_dataset"])
		require.NoError(t, err)
		overhead, err := strconv.Atoi(info["Memory"]["used_memory_overhead"])
		require.NoError(t, err)
		clients, err := strconv.Atoi(info["Memory"]["mem_clients_normal"])
		require.NoError(t, err)
		return bytes + overhead - clients
	}
	appendTo := func(topic int, a broker.Append) {
		a.Topic, a.Packet, a.Retention = fmt.Sprint("topic ", topic), make([]byte, packetBytes), broker.Retention{Messages: publications}
		_, err := n.Append(t.Context(), a)
		require.NoError(t, err)
	}
	measure := func(name string, count, maximum int, use func()) {
		before := used()
		use()
		bytes := (used() - before) / count
		t.Logf("%s: %d bytes", name, bytes)
		assert.LessOrEqual(t, bytes, maximum, name)
	}
	concurrently := func(f func(topic int)) {
		var wg sync.WaitGroup
		for topic := range topics {
			wg.Go(func() { f(topic) })
		}
		wg.Wait()
	}
	appendTo(topics, broker.Append{}) // loads the scripts
	measure("a topic with one publication", topics, 4950, func() {
		concurrently(func(topic int) { appendTo(topic, broker.Append{}) })
	})
	measure("every other publication", topics*(publications-1), 60+packetBytes, func() {
		concurrently(func(topic int) {
			for range publications - 1 {
				appendTo(topic, broker.Append{})
			}
		})
	})
	measure("an idempotency key of 20 bytes", topics*publications, 220, func() {
		concurrently(func(topic int) {
			for i := range publications {
				appendTo(topic, broker.Append{IdempotencyKey: fmt.Sprintf("%020d", i)})
			}
		})
	})
	measure("a state key of 20 bytes, with its publication", topics*publications, 260+packetBytes, func() {
		concurrently(func(topic int) {
			for i := range publications {
				appendTo(topic, broker.Append{StateKey: fmt.Sprintf("%020d", i)})
			}
		})
	})
}

// TestHistory_EvictionPolicyIsLoggedOnce uses histories of servers that may evict keys.
func TestHistory_EvictionPolicyIsLoggedOnce(t *testing.T) {
	servers := []struct {
		name  string
		start func(t *testing.T) (client goredis.UniversalClient, nodes []*redistest.Server)
	}{
		{"one server", func(t *testing.T) (goredis.UniversalClient, []*redistest.Server) {
			server := redistest.Start(t)
			return server.Client(t), []*redistest.Server{server}
		}},
		{"cluster", func(t *testing.T) (goredis.UniversalClient, []*redistest.Server) {
			servers := redistest.StartCluster(t)
			return servers.Client(t), servers.Nodes
		}},
	}
	for _, tt := range servers[:testscale.Pick(1, len(servers))] {
		t.Run(tt.name, func(t *testing.T) {
			logged := new(logBuffer)
			before := slog.Default()
			slog.SetDefault(slog.New(slog.NewTextHandler(logged, nil)))
			defer slog.SetDefault(before)
			client, nodes := tt.start(t)

			use := func() {
				n := connectHistory(t, client)
				for range 5 {
					n.publish(t, "1")
					n.page(t)
				}
				require.Eventually(t, n.policyChecked.Load, time.Minute, time.Millisecond)
			}
			use()
			assert.Zero(t, logged.count("maxmemory-policy"))
			for _, node := range nodes {
				require.NoError(t, node.Client(t).ConfigSet(t.Context(), "maxmemory-policy", "volatile-lru").Err())
			}
			use()
			require.Eventually(t, func() bool { return logged.count("maxmemory-policy is volatile-lru; it must be noeviction") > 0 }, time.Minute, time.Millisecond)
			connectHistory(t, client).page(t)
			require.Eventually(t, func() bool { return logged.count("level=WARN") == 2 }, time.Minute, time.Millisecond, "once for each node")
			assert.Equal(t, 2, logged.count("maxmemory-policy"), logged.String())
		})
	}
}

// A logBuffer is a log that can be read at any time.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write appends to the log.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns the log.
func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *logBuffer) count(s string) int { return strings.Count(b.String(), s) }
