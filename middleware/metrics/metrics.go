package metrics

import (
	"fmt"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limitfile"
	"github.com/penstock-go/penstock/router"
)

// Options configure [New]. The zero value is a working configuration.
type Options struct {
	// Codes are the application's own error codes that get a label value. Those of package
	// errors always have one; any other code counts as "other".
	Codes []errors.Code
}

// Metrics holds the metrics of one router, or the sums over several, and of their limits. All
// methods are safe for concurrent use.
type Metrics struct {
	codes map[errors.Code]string // label values

	accepted cache[string, prometheus.Counter]
	refused  cache[refusal, prometheus.Counter]
	closed   cache[closeCode, prometheus.Counter]

	messages cache[result, prometheus.Counter]
	handlers cache[string, prometheus.Observer]
	calls    prometheus.Gauge
	exceeded cache[string, prometheus.Counter]
	panics   cache[panicSource, prometheus.Counter]

	clientCalls cache[result, prometheus.Counter]
	clientTimes cache[string, prometheus.Observer]

	resumes cache[errors.Code, prometheus.Counter]

	received, sent       prometheus.Counter
	batchFrames, waited  prometheus.Observer
	dropped              cache[string, prometheus.Counter]
	fanOut, lag          prometheus.Observer
	lostMessages, losses prometheus.Counter
	conflated            prometheus.Counter

	shuttingDown, shutdownConns prometheus.Gauge
	aborted                     prometheus.Counter

	decisions cache[decision, prometheus.Counter]
	limits    cache[string, *limitSeries]

	runs runSeries

	all []prometheus.Collector

	mu         sync.Mutex
	routers    []*router.Router
	limiters   map[string]Counted
	limitsFile *limitfile.File // nil without one
}

// Counted is a limiter that counts its keys, such as those of package memory. Redis counts the
// keys of its limiters itself.
type Counted interface {
	Stats() limit.Stats
}

// New creates metrics and registers them with reg. If opts is nil, it uses the zero options. It
// panics if metrics of the same names are registered already. One Metrics can serve several
// routers; to distinguish them, create one Metrics per router, each with a labeled registerer:
//
//	metrics.New(prometheus.WrapRegistererWith(prometheus.Labels{"router": "admin"}, reg), nil)
func New(reg prometheus.Registerer, opts *Options) *Metrics {
	if reg == nil {
		panic("metrics: New needs a registerer; it is nil")
	}
	m := &Metrics{codes: map[errors.Code]string{"": "OK"}, limiters: map[string]Counted{}}
	for _, code := range errors.Codes() {
		m.codes[code] = string(code)
	}
	if opts != nil {
		for _, code := range opts.Codes {
			m.codes[code] = string(code)
		}
	}
	m.defineConnections()
	m.defineMessages()
	m.defineQueues()
	m.defineTopics()
	m.defineLimits()
	m.defineRuns()
	m.createSeries()
	if err := reg.Register(collector{m}); err != nil {
		panic(fmt.Sprintf("metrics: %v; several routers can share one Metrics, "+
			"or each have one with a registerer from prometheus.WrapRegistererWith", err))
	}
	return m
}

// Router adds a router to the metrics. It must be called before r serves, and panics if r was
// added before.
func (m *Metrics) Router(r *router.Router) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if slices.Contains(m.routers, r) {
		panic("metrics: Router was called twice with the same router; every event would count twice")
	}
	r.Observe(m.observe)
	m.routers = append(m.routers, r)
}

// Limiter adds the number of keys of a limiter to the metrics, under the label limit=name. It
// panics if l is nil or a limiter has that name already.
func (m *Metrics) Limiter(name string, l Counted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.limiters[name]; ok || l == nil {
		panic(fmt.Sprintf("metrics: Limiter needs a limiter and an unused name; got %T, %q", l, name))
	}
	m.limiters[name] = l
}

// LimitsFile adds whether the limits in effect are those of a file. It panics if f is nil or there is
// a file already.
func (m *Metrics) LimitsFile(f *limitfile.File) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.limitsFile != nil || f == nil {
		panic("metrics: LimitsFile needs a file, and can be called once; pass all limiters to one limitfile.Load")
	}
	m.limitsFile = f
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	m.all = append(m.all, c)
	return c
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
	m.all = append(m.all, c)
	return c
}

func (m *Metrics) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
	m.all = append(m.all, g)
	return g
}

func (m *Metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
	m.all = append(m.all, h)
	return h
}

func (m *Metrics) histograms(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}, labels)
	m.all = append(m.all, h)
	return h
}

const namespace = "penstock"

// seconds returns the histogram buckets from least to 30 s. least must be one of them.
func seconds(least float64) []float64 {
	all := []float64{
		1e-6, 1e-5, 1e-4, 2.5e-4, 5e-4, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30,
	}
	return all[slices.Index(all, least):]
}
