package metrics_test

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/middleware/metrics"
	"github.com/penstock-go/penstock/router"
)

type Echo struct {
	N int `json:"n"`
}

func (Echo) MessageType() string { return "ECHO" }

type Fail struct{}

func (Fail) MessageType() string { return "FAIL" }

type Boom struct{}

func (Boom) MessageType() string { return "BOOM" }

type Say struct {
	Text string `json:"text"`
}

func (Say) MessageType() string { return "SAY" }

type Join struct{}

func (Join) MessageType() string { return "JOIN" }

func echo(_ *router.Context, m Echo) (Echo, error) { return m, nil }
func fail(*router.Context, Fail) error             { return errors.Errorf("TEAPOT", "no coffee") }
func boom(*router.Context, Boom) error             { panic("boom") }
func say(ctx *router.Context, m Say) error         { return ctx.Publish("room", m) }

// newRouter returns a router with a few routes, and the registry of its metrics.
func newRouter(opts router.Options) (*router.Router, *prometheus.Registry) {
	opts.Logger = slog.New(slog.DiscardHandler)
	reg := prometheus.NewPedanticRegistry()
	r := router.New(&opts)
	metrics.New(reg, nil).Router(r)
	router.RPC(r, echo)
	router.On(r, fail)
	router.On(r, boom)
	router.On(r, say)
	return r, reg
}

// scrape returns all series except histogram buckets, by "name{label=value,...}". Labels with an
// empty value are left out.
func scrape(t require.TestingT, reg *prometheus.Registry) map[string]float64 {
	families, err := reg.Gather()
	require.NoError(t, err)
	series := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				if l.GetValue() != "" {
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			name := strings.TrimPrefix(f.GetName(), "penstock_")
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			switch {
			case one.Counter != nil:
				series[name] = one.GetCounter().GetValue()
			case one.Gauge != nil:
				series[name] = one.GetGauge().GetValue()
			default:
				series[name+" count"] = float64(one.GetHistogram().GetSampleCount())
				series[name+" sum"] = one.GetHistogram().GetSampleSum()
			}
		}
	}
	return series
}

// check compares series that are written as "name{labels} value".
func check(t testing.TB, reg *prometheus.Registry, want ...string) {
	t.Helper()
	got := scrape(t, reg)
	for _, line := range want {
		i := strings.LastIndex(line, " ")
		value, err := strconv.ParseFloat(line[i+1:], 64)
		require.NoError(t, err)
		have, ok := got[line[:i]]
		assert.True(t, ok, "there is no series %s", line[:i])
		assert.InDelta(t, value, have, 1e-9, line)
	}
}
