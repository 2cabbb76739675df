package chatpage_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/interop/exampletest"
	"github.com/penstock-go/penstock/internal/redistest"
)

var program = exampletest.Example{Name: "chat"}

func TestMain(m *testing.M) { program.Main(m) }

// startProgram starts a chat on a free port.
func startProgram(t *testing.T, flags ...string) *exampletest.Program {
	t.Helper()
	return program.Start(t, flags...)
}

// withMetrics is the flag for the metrics that [metric] reads.
const withMetrics = "-metrics-addr=127.0.0.1:0"

// connections is the metric for the connections of a node.
const connections = "penstock_connections_open"

// startTwoNodes starts two chats that share a Redis server.
func startTwoNodes(t *testing.T, flags ...string) (one, two *exampletest.Program) {
	t.Helper()
	flags = append(flags, withMetrics, "-redis=redis://"+redistest.Start(t).Addr)
	return startProgram(t, flags...), startProgram(t, flags...)
}

// metric returns a metric of a node, such as penstock_connections_open, or 0 without such a metric.
func metric(t *testing.T, node *exampletest.Program, name string) float64 {
	t.Helper()
	resp, err := http.Get(node.Metrics)
	require.NoError(t, err)
	defer resp.Body.Close() //nolint:errcheck // only read from
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			value, err := strconv.ParseFloat(text, 64)
			require.NoError(t, err)
			return value
		}
	}
	return 0
}

// waitMetric waits until a metric of a node has a value.
func waitMetric(t *testing.T, node *exampletest.Program, name string, want float64) {
	t.Helper()
	require.Eventually(t, func() bool { return metric(t, node, name) == want }, browsertest.Timeout, 10*time.Millisecond, name)
}

// A connector is a load balancer that forwards to one of several nodes, or rejects connections.
type connector struct {
	url     string
	current atomic.Pointer[http.Handler] // nil: it rejects
}

func startConnector(t *testing.T, node *exampletest.Program) *connector {
	t.Helper()
	c := &connector{}
	c.use(node)
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *connector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if forward := c.current.Load(); forward != nil {
		(*forward).ServeHTTP(w, r)
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
}

// use forwards to another node from now on. Connections remain where they are.
func (c *connector) use(node *exampletest.Program) { c.current.Store(new(node.Forward())) }
