package otlp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/freeport"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/otel"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// An order is a call.
type order struct {
	Item string `json:"item"`
}

func (order) MessageType() string { return "ORDER" }

// send makes a call, which publishes, and sends a message of an unknown type. Their spans are
// exported to addr.
func send(t *testing.T, addr string) {
	t.Helper()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpoint(addr), otlptracehttp.WithInsecure())
	require.NoError(t, err)
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter))
	r := router.New(&router.Options{Tracer: otel.NewTracer(&otel.Options{TracerProvider: provider})})
	router.Topic(r, "orders/{item}", nil)
	router.RPC(r, func(ctx *router.Context, m order) (order, error) { return m, ctx.Publish("orders/"+m.Item, m) })
	client := routertest.Dial(t, r)
	routertest.Call[order](client, order{Item: "tea"})
	client.SendText(`{"type":"id-8123"}`)
	assert.Equal(t, errors.Unimplemented, routertest.ReceiveError(client).Code)
	require.NoError(t, r.Shutdown(t.Context()))
	require.NoError(t, provider.Shutdown(t.Context()))
}

// TestExport_SendsSpans receives spans as a collector does.
func TestExport_SendsSpans(t *testing.T) {
	requests := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		requests <- req.URL.Path + string(body)
	}))
	defer collector.Close()
	send(t, collector.Listener.Addr().String())
	request := <-requests
	for _, want := range []string{"/v1/traces", "ORDER", "publish orders/{item}", "_OTHER"} {
		assert.Contains(t, request, want)
	}
	assert.NotContains(t, request, "id-8123")
}

// TestExport_ToCollector builds the collector of internal/otelcol, and reads what it has received.
func TestExport_ToCollector(t *testing.T) {
	testscale.FullOnly(t, "TestExport_SendsSpans")
	addr, output := startCollector(t)
	send(t, addr)
	for _, want := range []string{"ORDER", "publish orders/{item}", "_OTHER", "Server", "Producer", "rpc.system.name: Str(penstock)", "messaging.destination.template: Str(orders/{item})"} {
		assert.Eventually(t, func() bool { return strings.Contains(output.String(), want) }, 20*time.Second, 10*time.Millisecond, want)
	}
	if t.Failed() {
		t.Log(output.String())
	}
}

// startCollector returns the address of a collector, and what it prints.
func startCollector(t *testing.T) (addr string, output *lockedBuffer) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "otelcol")
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../otelcol", "-o", program, ".")
	if text, err := build.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the collector cannot be built: %v\n%s", err, text)
		}
		t.Skipf("the collector cannot be built: %v", err)
	}
	addr = freeport.Address()
	config := filepath.Join(dir, "config.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {debug: {verbosity: detailed}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [debug]}}
`, addr), 0o600))
	output = new(lockedBuffer)
	ctx, cancel := context.WithCancel(context.Background())
	collector := exec.CommandContext(ctx, program, "--config", config)
	collector.Stdout, collector.Stderr = output, output
	require.NoError(t, collector.Start())
	t.Cleanup(func() {
		cancel()
		_ = collector.Wait()
	})
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, 20*time.Second, 10*time.Millisecond, "%s", output)
	return addr, output
}

// A lockedBuffer is a buffer that is safe for concurrent use.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
