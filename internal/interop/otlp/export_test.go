package otlp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/penstock-go/penstock/errors"
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

// TestExport_SendsSpans receives spans as a collector does. That of package production prints them.
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
