package otel_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/otel"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

const (
	clientTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	clientSpan  = "00f067aa0ba902b7"
)

// TestTracer_TrustDecidesAboutTheClient sends a trace context that says that it is sampled.
func TestTracer_TrustDecidesAboutTheClient(t *testing.T) {
	for name, tt := range map[string]struct {
		trust  otel.Trust
		root   sdktrace.Sampler
		spans  int
		parent bool
		links  int
	}{
		"link":                {otel.Link, sdktrace.AlwaysSample(), 1, false, 1},
		"link, not sampled":   {otel.Link, sdktrace.NeverSample(), 0, false, 0},
		"parent":              {otel.Parent, sdktrace.NeverSample(), 1, true, 0},
		"ignore":              {otel.Ignore, sdktrace.AlwaysSample(), 1, false, 0},
		"ignore, not sampled": {otel.Ignore, sdktrace.NeverSample(), 0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				provider, spans := traced(t, sdktrace.WithSampler(sdktrace.ParentBased(tt.root)))
				r := newRouter(router.Options{Tracer: otel.NewTracer(&otel.Options{TracerProvider: provider, Trust: tt.trust})})
				client := routertest.Dial(t, r)
				client.SendText(fmt.Sprintf(`{"type":"PING","meta":{"traceparent":"00-%s-%s-01","tracestate":"a=b"}}`, clientTrace, clientSpan))
				synctest.Wait()
				all := spans.GetSpans()
				require.Len(t, all, tt.spans)
				if tt.spans == 0 {
					return
				}
				assert.Equal(t, tt.parent, all[0].Parent.IsValid())
				assert.Equal(t, tt.parent, all[0].SpanContext.TraceID().String() == clientTrace)
				require.Len(t, all[0].Links, tt.links)
				if tt.links > 0 {
					assert.Equal(t, clientTrace, all[0].Links[0].SpanContext.TraceID().String())
					assert.Equal(t, clientSpan, all[0].Links[0].SpanContext.SpanID().String())
				}
				_ = r.Shutdown(t.Context())
			})
		})
	}
}

// TestTracer_InvalidTraceContextsAreIgnored sends trace contexts that are recorded nowhere, even if
// the server trusts clients.
func TestTracer_InvalidTraceContextsAreIgnored(t *testing.T) {
	const zeroTrace, zeroSpan = "00000000000000000000000000000000", "0000000000000000"
	for name, parent := range map[string]string{
		"empty":             ``,
		"no hexadecimals":   `00-` + strings.Repeat("x", 32) + `-` + clientSpan + `-01`,
		"upper case":        strings.ToUpper(`00-` + clientTrace + `-` + clientSpan + `-01`),
		"a zero trace":      `00-` + zeroTrace + `-` + clientSpan + `-01`,
		"a zero span":       `00-` + clientTrace + `-` + zeroSpan + `-01`,
		"too short":         `00-` + clientTrace + `-` + clientSpan,
		"too long":          `00-` + clientTrace + `-` + clientSpan + `-01-` + strings.Repeat("0", 100),
		"version ff":        `ff-` + clientTrace + `-` + clientSpan + `-01`,
		"several":           `00-` + clientTrace + `-` + clientSpan + `-01,00-` + clientTrace + `-` + clientSpan + `-01`,
		"an escape":         `00-` + clientTrace + `-` + clientSpan + `\u002d01`,
		"a line of the log": `00-` + clientTrace + `\n` + clientSpan + `-01`,
		"one megabyte":      strings.Repeat("0", 1_000_000),
	} {
		for _, trust := range []otel.Trust{otel.Link, otel.Parent} {
			t.Run(fmt.Sprint(name, ", trust ", trust), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					provider, spans := traced(t)
					r := newRouter(router.Options{Tracer: otel.NewTracer(&otel.Options{TracerProvider: provider, Trust: trust}), Limits: router.Limits{MaxMessageBytes: 2 << 20}})
					client := routertest.Dial(t, r)
					client.SendText(`{"type":"PING","meta":{"traceparent":"` + parent + `","tracestate":"a=b"}}`)
					synctest.Wait()
					require.Len(t, spans.GetSpans(), 1, "the message is handled as without it")
					span := spans.GetSpans()[0]
					assert.Equal(t, "OK", attrs(span)["rpc.response.status_code"])
					assert.Empty(t, span.Links)
					assert.False(t, span.Parent.IsValid())
					assert.NotEqual(t, clientTrace, span.SpanContext.TraceID().String())
					assert.Empty(t, span.SpanContext.TraceState().String())
					_ = r.Shutdown(t.Context())
				})
			})
		}
	}
}

// TestTracer_HostileClientsForceNothing sends 1,000 different trace contexts, valid and invalid.
func TestTracer_HostileClientsForceNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sampled int
		sampler := countingSampler{sdktrace.NeverSample(), &sampled}
		provider, spans := traced(t, sdktrace.WithSampler(sdktrace.ParentBased(sampler)))
		r := newRouter(router.Options{Tracer: otel.NewTracer(&otel.Options{TracerProvider: provider})})
		client := routertest.Dial(t, r)
		for i := range 1000 {
			parent := fmt.Sprintf("00-%032x-%016x-01", i+1, i+1)
			state := strings.Repeat("x", i)
			switch i % 4 {
			case 1:
				parent = "ff-" + state
			case 2:
				parent = state
			}
			client.SendText(fmt.Sprintf(`{"type":"T%d","meta":{"traceparent":%q,"tracestate":%q}}`, i, parent, "a="+state))
			assert.Equal(t, errors.Unimplemented, routertest.ReceiveError(client).Code)
		}
		assert.Empty(t, spans.GetSpans())
		assert.Equal(t, 1000, sampled, "the sampler of roots decides about each message")
		_ = r.Shutdown(t.Context())
	})
}

// A countingSampler counts its decisions.
type countingSampler struct {
	sdktrace.Sampler

	n *int
}

func (s countingSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	*s.n++
	return s.Sampler.ShouldSample(p)
}
