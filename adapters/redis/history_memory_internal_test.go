package redis

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

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
