package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// A collector registers all metrics at once. It reads the numbers that routers and limiters
// maintain themselves at each scrape.
type collector struct{ m *Metrics }

//nolint:gochecknoglobals // constants in all but syntax
var (
	openDesc      = desc("connections_open", "Open connections.")
	queuedDesc    = desc("queue_messages", "Messages in the send queues of all connections.")
	queueDesc     = desc("queue_bytes", "Bytes in the send queues of all connections.")
	keysDesc      = desc("limiter_keys", "Keys that a limiter stores in this process.", "limit")
	evictionsDesc = desc("limiter_evictions_total", "Keys that a limiter removed because their buckets were full again.", "limit")
	reloadedDesc  = desc("limits_file_last_reload_successful", "1 if the limits in effect are those of their file, and 0 if the file could not be read or applied.")
	appliedDesc   = desc("limits_file_last_reload_success_timestamp_seconds", "When the limits in effect were read from their file.")
	overflowDesc  = desc("limiter_overflow_total", "Calls for new keys while the limiter stored its maximum of keys; they shared one bucket.", "limit")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// createSeries creates the series that alerts query, with the value 0: Prometheus counts no
// increase when a counter first appears with the value 1.
func (m *Metrics) createSeries() {
	for _, where := range []string{
		"Authenticate", "ConnContext", "OnOpen", "OnClose", "OnPresence", "OnMessagesLost", "OnError", "OnRefused", "OnLimitExceeded", "OnBackpressure",
	} {
		m.panics.get(panicSource{"", where})
	}
	m.panics.get(panicSource{unknownType, "ingress"})
	for _, p := range []router.SlowConsumerPolicy{router.Disconnect, router.DropOldest, router.DropNewest, router.Conflate} {
		m.dropped.get(p.String())
	}
	for _, name := range limitNames {
		m.exceeded.get(name)
	}
}

// createTypeSeries does the same for the message types of a router.
func (m *Metrics) createTypeSeries(r *router.Router) {
	for typ := range r.Types() {
		for _, code := range []errors.Code{"", errors.Internal, errors.DeadlineExceeded, errors.Unavailable} {
			m.messages.get(result{typ, m.code(code)})
		}
		for _, where := range []string{"ingress", "decode", "handler", "reply"} {
			m.panics.get(panicSource{typ, where})
		}
	}
}

// Describe implements prometheus.Collector.
func (c collector) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range c.m.all {
		one.Describe(descs)
	}
	for _, d := range []*prometheus.Desc{openDesc, queuedDesc, queueDesc, keysDesc, evictionsDesc, overflowDesc, reloadedDesc, appliedDesc} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	c.m.mu.Lock()
	routers, limiters, file := slices.Clone(c.m.routers), maps.Clone(c.m.limiters), c.m.limitsFile
	c.m.mu.Unlock()
	for _, r := range routers {
		c.m.createTypeSeries(r)
	}
	for _, one := range c.m.all {
		one.Collect(out)
	}
	var sum router.Stats
	for _, r := range routers {
		one := r.Stats()
		sum.Conns += one.Conns
		sum.QueuedMessages += one.QueuedMessages
		sum.QueuedBytes += one.QueuedBytes
	}
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, float64(value), labels...)
	}
	send(openDesc, prometheus.GaugeValue, int64(sum.Conns))
	send(queuedDesc, prometheus.GaugeValue, int64(sum.QueuedMessages))
	send(queueDesc, prometheus.GaugeValue, int64(sum.QueuedBytes))
	for name, l := range limiters {
		stats := l.Stats()
		send(keysDesc, prometheus.GaugeValue, stats.Keys, name)
		send(evictionsDesc, prometheus.CounterValue, stats.Evicted, name)
		send(overflowDesc, prometheus.CounterValue, stats.Overflowed, name)
	}
	if file == nil {
		return
	}
	status, reloaded := file.Status(), int64(1)
	if status.Err != nil {
		reloaded = 0
	}
	send(reloadedDesc, prometheus.GaugeValue, reloaded)
	send(appliedDesc, prometheus.GaugeValue, status.Applied.Unix())
}
