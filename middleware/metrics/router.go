package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

const (
	unknownType = "__unknown" // the router lets no message be called so
	other       = "other"
)

// What a series is about, where that is more than one thing.
type (
	refusal  struct{ reason, code string }
	answer   struct{ typ, code string }
	panicked struct{ typ, where string }
)

func (m *Metrics) defineConnections() {
	m.accepted = m.counter("connections_accepted_total", "Requests that have become connections.")
	refused := m.counters("connections_refused_total", "Connections that were refused, by where and with which code.", "reason", "code")
	m.refused.make = func(r refusal) prometheus.Counter { return refused.WithLabelValues(r.reason, r.code) }
	closed := m.counters("connections_closed_total", "Connections that have ended, by the code of the close frame that came or went first.", "code")
	m.closed.make = func(b bucket) prometheus.Counter { return closed.WithLabelValues(b.label()) }
	m.draining = m.gauge("draining", "Whether a router is shutting down: 1 if so.")
	m.drain = m.gauge("drain_connections", "Connections that were open when the shutdown began.")
	m.cut = m.counter("drain_cut_connections_total", "Connections that were cut because the time for the shutdown was up.")
}

func (m *Metrics) defineMessages() {
	messages := m.counters("messages_total", "Messages that were read, by type and by the code of their answer.", "type", "code")
	m.messages.make = func(a answer) prometheus.Counter { return messages.WithLabelValues(a.typ, a.code) }
	handlers := m.histograms("handler_duration_seconds", "Time in handlers, their middleware included.", seconds(1e-4), "type")
	m.handlers.make = func(typ string) prometheus.Observer { return handlers.WithLabelValues(typ) }
	m.calls = m.gauge("calls_in_flight", "RPCs that were admitted and whose handlers have not returned.")
	exceeded := m.counters("limit_exceeded_total", "Messages and connections that a limit has turned away, by its kind.", "kind")
	m.exceeded.make = func(kind string) prometheus.Counter { return exceeded.WithLabelValues(kind) }
	panics := m.counters("panics_total", "Panics that were contained, by type and place.", "type", "where")
	m.panics.make = func(p panicked) prometheus.Counter { return panics.WithLabelValues(p.typ, p.where) }
}

func (m *Metrics) defineQueues() {
	m.received = m.counter("received_bytes_total", "Bytes read from clients.")
	m.sent = m.counter("sent_bytes_total", "Bytes of frames written to clients.")
	m.frames = m.histogram("frames_per_write", "Frames that left in one system call.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256})
	m.waited = m.histogram("queue_wait_seconds", "Age of the oldest frame of each system call.", seconds(1e-4))
	dropped := m.counters("queue_dropped_messages_total", "Messages that full queues have dropped, by policy.", "policy")
	m.dropped.make = func(p router.SlowConsumerPolicy) prometheus.Counter { return dropped.WithLabelValues(policyName(p)) }
}

func (m *Metrics) defineTopics() {
	m.fanOut = m.histogram("publish_fanout_connections", "Connections of this node that each message published here was queued for.",
		[]float64{0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000})
	m.lag = m.histogram("broker_lag_seconds", "Time from when another node published a message to when it was here, by both clocks.", seconds(1e-4))
	m.lost = m.counter("broker_lost_messages_total", "Messages from other nodes that were lost, as far as is known.")
	m.gaps = m.counter("broker_gaps_total", "Times that messages from other nodes were lost.")
}

// observe is called by routers. It allocates nothing but for a new series.
func (m *Metrics) observe(e router.Event) {
	switch e.Kind {
	case router.EventOpened:
		m.accepted.Inc()
	case router.EventClosed:
		m.closed.get(bucketOf(e.Status)).Inc()
	case router.EventRejected:
		m.refused.get(refusal{e.Reason, m.code(e.Code)}).Inc()
	case router.EventRead:
		m.received.Add(float64(e.Bytes))
	case router.EventStarted:
		m.calls.Inc()
	case router.EventFinished:
		m.calls.Dec()
	case router.EventHandled:
		m.handlers.get(e.Type).Observe(e.Duration.Seconds())
	case router.EventCompleted:
		m.messages.get(answer{typeOf(e), m.code(e.Code)}).Inc()
	case router.EventLimitExceeded:
		m.exceeded.get(limitKind(router.LimitKind(e.Reason))).Inc()
	case router.EventPanicked:
		m.panics.get(panicked{typeOf(e), e.Reason}).Inc()
	default:
		m.observeSending(e)
	}
}

func (m *Metrics) observeSending(e router.Event) {
	switch e.Kind {
	case router.EventWritten:
		m.sent.Add(float64(e.Bytes))
		m.frames.Observe(float64(e.Count))
		if e.Duration > 0 { // of control frames it is not known
			m.waited.Observe(e.Duration.Seconds())
		}
	case router.EventDropped:
		m.dropped.get(e.Policy).Add(float64(e.Count))
		m.exceeded.get(string(router.LimitQueue)).Add(float64(e.Count))
	case router.EventPublished:
		m.fanOut.Observe(float64(e.Count))
	case router.EventDelivered:
		m.lag.Observe(e.Duration.Seconds())
	case router.EventMessagesLost:
		m.gaps.Inc()
		m.lost.Add(float64(e.Count))
	case router.EventShutdown:
		m.draining.Set(1)
		m.drain.Add(float64(e.Count))
	case router.EventAborted:
		m.cut.Add(float64(e.Count))
	}
}

func typeOf(e router.Event) string {
	if e.Type == "" && (e.Kind == router.EventCompleted || e.Reason == "ingress") {
		return unknownType
	}
	return e.Type
}

func (m *Metrics) code(code errors.Code) string {
	if label, ok := m.codes[code]; ok {
		return label
	}
	return other
}

// A bucket is a close code, or stands for several, because clients may choose theirs.
type bucket router.StatusCode

const (
	otherCodes       bucket = 0
	applicationCodes bucket = 4000
)

func bucketOf(code router.StatusCode) bucket {
	switch code {
	case 1000, 1001, 1002, 1003, 1005, 1006, 1007, 1008, 1009, 1011, 1012, 1013:
		return bucket(code)
	}
	if code >= 4000 && code <= 4999 {
		return applicationCodes
	}
	return otherCodes
}

func (b bucket) label() string {
	switch b {
	case otherCodes:
		return other
	case applicationCodes:
		return "application"
	default:
		return strconv.Itoa(int(b))
	}
}

func limitKind(kind router.LimitKind) string {
	switch kind {
	case router.LimitRate, router.LimitPayload, router.LimitConcurrency, router.LimitConnections, router.LimitQueue:
		return string(kind)
	default:
		return other
	}
}

func policyName(p router.SlowConsumerPolicy) string {
	switch p {
	case router.Disconnect:
		return "disconnect"
	case router.DropOldest:
		return "drop_oldest"
	case router.DropNewest:
		return "drop_newest"
	case router.Conflate:
		return "keep_latest"
	default:
		return other
	}
}
