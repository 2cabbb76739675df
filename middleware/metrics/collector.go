package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

// A collector is what is registered: all metrics at once. What routers and limiters know
// by themselves is asked for when somebody looks, and costs nothing otherwise.
type collector struct{ m *Metrics }

//nolint:gochecknoglobals // constants, but for the language
var (
	openDesc      = desc("connections_open", "Connections that are open.")
	queuedDesc    = desc("queue_messages", "Messages that wait to be sent, to all connections together.")
	queueDesc     = desc("queue_bytes", "Bytes that wait to be sent, to all connections together.")
	keysDesc      = desc("limiter_keys", "Keys that a limiter keeps in this process.", "policy")
	evictionsDesc = desc("limiter_evictions_total", "Keys that were dropped, because their buckets were full again, or nothing counted of them.", "policy")
	crowdedDesc   = desc("limiter_crowded_total", "Messages of new keys for which there was no room, so that they shared what others have.", "policy")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// begin has the series of which alerts are made begin at 0: a counter that is first seen
// at 1 has not increased, as far as Prometheus knows.
func (m *Metrics) begin() {
	for _, hook := range []string{"Authenticate", "OnOpen", "OnClose", "OnMember", "OnMissed", "OnError", "OnLimitExceeded", "OnQueueHigh", "CloseCode"} {
		m.panics.get(panicked{"", hook})
	}
	m.panics.get(panicked{unknownType, "ingress"})
	for _, p := range []router.QueuePolicy{router.Disconnect, router.DropOldest, router.DropNewest, router.KeepLatest} {
		m.dropped.get(p)
	}
	for _, kind := range []router.LimitKind{router.LimitRate, router.LimitPayload, router.LimitInFlight, router.LimitConnections, router.LimitQueue} {
		m.exceeded.get(string(kind))
	}
}

// beginTypes is begin for what a router has registered until now.
func (m *Metrics) beginTypes(r *router.Router) {
	for typ := range r.Types() {
		for _, code := range []errors.Code{"", errors.Internal, errors.DeadlineExceeded, errors.Unavailable} {
			m.messages.get(answer{typ, m.code(code)})
		}
		for _, where := range []string{"ingress", "decode", "handler"} {
			m.panics.get(panicked{typ, where})
		}
	}
}

// Describe is for the registry.
func (c collector) Describe(descs chan<- *prometheus.Desc) {
	for _, one := range c.m.all {
		one.Describe(descs)
	}
	for _, d := range []*prometheus.Desc{openDesc, queuedDesc, queueDesc, keysDesc, evictionsDesc, crowdedDesc} {
		descs <- d
	}
}

// Collect is for the registry.
func (c collector) Collect(out chan<- prometheus.Metric) {
	c.m.mu.Lock()
	routers, limiters := slices.Clone(c.m.routers), maps.Clone(c.m.limiters)
	c.m.mu.Unlock()
	for _, r := range routers {
		c.m.beginTypes(r)
	}
	for _, one := range c.m.all {
		one.Collect(out)
	}
	var load router.Load
	for _, r := range routers {
		one := r.Load()
		load.Conns += one.Conns
		load.QueuedMessages += one.QueuedMessages
		load.QueuedBytes += one.QueuedBytes
	}
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, float64(value), labels...)
	}
	send(openDesc, prometheus.GaugeValue, int64(load.Conns))
	send(queuedDesc, prometheus.GaugeValue, int64(load.QueuedMessages))
	send(queueDesc, prometheus.GaugeValue, int64(load.QueuedBytes))
	for name, l := range limiters {
		stats := l.Stats()
		send(keysDesc, prometheus.GaugeValue, stats.Keys, name)
		send(evictionsDesc, prometheus.CounterValue, stats.Evicted, name)
		send(crowdedDesc, prometheus.CounterValue, stats.Crowded, name)
	}
}
