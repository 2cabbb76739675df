package tsclient_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/penstock-go/penstock/otel"
	"github.com/penstock-go/penstock/router"
)

func TestTypeScriptClient_TracesWithServer(t *testing.T) {
	run(t, []string{"PENSTOCK_URL=" + startTracedServer(t)}, "npm", "test", "--", "otel-server")
}

// startTracedServer returns the URL of a server whose path /spans has the spans that have ended.
func startTracedServer(t *testing.T) string {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	r := router.New(&router.Options{Tracer: otel.NewTracer(&otel.Options{TracerProvider: provider})})
	register(r)
	mux := http.NewServeMux()
	mux.Handle("/", r)
	mux.HandleFunc("/spans", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(describe(spans.GetSpans()))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		_ = r.Shutdown(context.Background())
		server.Close()
	})
	return "ws" + strings.TrimPrefix(server.URL, "http")
}

// A span is what otel-server.test.ts reads.
type span struct {
	Name     string   `json:"name"`
	Kind     string   `json:"kind"`
	TraceID  string   `json:"traceId"`
	SpanID   string   `json:"spanId"`
	ParentID string   `json:"parentId"`
	Links    []string `json:"links"`
}

func describe(stubs tracetest.SpanStubs) []span {
	all := make([]span, len(stubs))
	for i, stub := range stubs {
		of := stub.SpanContext
		all[i] = span{stub.Name, stub.SpanKind.String(), of.TraceID().String(), of.SpanID().String(), stub.Parent.SpanID().String(), nil}
		for _, link := range stub.Links {
			all[i].Links = append(all[i].Links, link.SpanContext.SpanID().String())
		}
	}
	return all
}
