package metrics

import (
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
)

const (
	unknownType = "__unknown" // the router registers no message type of this name
	other       = "other"
)

// Label values of the series that have more than one label.
type (
	refusal     struct{ reason, code string }
	result      struct{ typ, code string }
	panicSource struct{ typ, where string }
)

func (m *Metrics) defineConnections() {
	accepted := m.counters("connections_accepted_total",
		"Requests that became connections, by transport: websocket, and http-stream or http-poll where WebSocket is blocked.", "transport")
	m.accepted.make = func(transport string) prometheus.Counter { return accepted.WithLabelValues(transport) }
	m.accepted.get(string(router.TransportWebSocket))
	refused := m.counters("connections_refused_total",
		"Handshakes that were refused and connections that OnOpen refused, by reason and error code.", "reason", "code")
	m.refused.make = func(r refusal) prometheus.Counter { return refused.WithLabelValues(r.reason, r.code) }
	closed := m.counters("connections_closed_total",
		"Connections that ended, by the close code of the first close frame in either direction; 1006 if there was none.", "code")
	m.closed.make = func(c closeCode) prometheus.Counter { return closed.WithLabelValues(c.label()) }
	resumes := m.counters("session_resumes_total",
		"Sessions that clients have asked to resume, by the error code of the result, OK if there was no error.", "code")
	m.resumes.make = func(code errors.Code) prometheus.Counter { return resumes.WithLabelValues(m.code(code)) }
	m.shuttingDown = m.gauge("shutting_down", "1 while a router is shutting down or has shut down, otherwise 0.")
	m.shutdownConns = m.gauge("shutdown_connections", "Connections that were open when the shutdown began.")
	m.aborted = m.counter("shutdown_aborted_connections_total",
		"Connections that were aborted because they were still open at the deadline of the shutdown.")
}

func (m *Metrics) defineMessages() {
	messages := m.counters("messages_total",
		"Messages that were received, by type and by the error code of their result, OK if there was no error.", "type", "code")
	m.messages.make = func(r result) prometheus.Counter { return messages.WithLabelValues(r.typ, r.code) }
	handlers := m.histograms("handler_duration_seconds", "Time that handlers and their middleware took, in seconds.", seconds(1e-4), "type")
	m.handlers.make = func(typ string) prometheus.Observer { return handlers.WithLabelValues(typ) }
	clientCalls := m.counters("client_calls_total",
		"Calls to clients that have ended, by type and by the error code of their result, OK if there was no error.", "type", "code")
	m.clientCalls.make = func(r result) prometheus.Counter { return clientCalls.WithLabelValues(r.typ, r.code) }
	clientTimes := m.histograms("client_call_duration_seconds", "Time until a call to a client ended, in seconds.", seconds(.001), "type")
	m.clientTimes.make = func(typ string) prometheus.Observer { return clientTimes.WithLabelValues(typ) }
	m.calls = m.gauge("calls_in_flight", "Calls that were admitted and whose handlers have not returned.")
	exceeded := m.counters("limit_exceeded_total",
		"Messages and connections that exceeded a limit, by the option that sets it, or the kind of a limit of the application; for queues, the dropped messages.", "limit")
	m.exceeded.make = func(limit string) prometheus.Counter { return exceeded.WithLabelValues(limit) }
	panics := m.counters("panics_total", "Panics in application code that were recovered, by message type and by where they occurred.", "type", "where")
	m.panics.make = func(p panicSource) prometheus.Counter { return panics.WithLabelValues(p.typ, p.where) }
}

func (m *Metrics) defineQueues() {
	m.received = m.counter("received_bytes_total", "Bytes of WebSocket frames that were read from clients, compressed and with frame headers.")
	m.sent = m.counter("sent_bytes_total", "Bytes of WebSocket frames that were written to clients, compressed and with frame headers.")
	m.batchFrames = m.histogram("write_batch_frames", "Frames that one system call wrote.", []float64{1, 2, 4, 8, 16, 32, 64, 128, 256})
	m.waited = m.histogram("queue_wait_seconds", "Time that the oldest message of each system call waited in the send queue, in seconds.", seconds(1e-4))
	dropped := m.counters("queue_dropped_messages_total", "Messages that full send queues dropped, by slow consumer policy.", "policy")
	m.conflated = m.counter("queue_conflated_messages_total", "Queued messages that later ones with their key replaced, under the slow consumer policy Conflate.")
	m.dropped.make = func(policy string) prometheus.Counter { return dropped.WithLabelValues(policy) }
}

func (m *Metrics) defineTopics() {
	m.fanOut = m.histogram("publish_fanout_connections", "Connections of this node to which each message published on this node was queued.",
		[]float64{0, 1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000})
	m.lag = m.histogram("broker_lag_seconds",
		"Time from the publication of a message on another node to its delivery on this node, in seconds, by the clocks of both nodes.", seconds(1e-4))
	m.lostMessages = m.counter("broker_lost_messages_total", "Messages from other nodes that were lost, where their number is known.")
	m.losses = m.counter("broker_loss_events_total", "Losses of messages from other nodes that were detected, each of one or more messages.")
}

// observe records an event of a router. It allocates only for a new series.
func (m *Metrics) observe(e observe.Event) {
	switch e.Kind {
	case observe.Opened:
		m.accepted.get(e.Transport).Inc()
	case observe.Closed:
		m.closed.get(closeCodeOf(e.Status)).Inc()
	case observe.Refused:
		m.observeRefused(e)
	case observe.Read:
		m.received.Add(float64(e.Bytes))
	case observe.Started:
		m.calls.Inc()
	case observe.Finished:
		m.calls.Dec()
	case observe.Handled:
		m.handlers.get(e.Type).Observe(e.Duration.Seconds())
	case observe.Completed:
		m.messages.get(result{typeOf(e), m.code(e.Code)}).Inc()
	case observe.ClientCall:
		m.clientCalls.get(result{e.Type, m.code(e.Code)}).Inc()
		m.clientTimes.get(e.Type).Observe(e.Duration.Seconds())
	case observe.SessionResumed:
		m.resumes.get(e.Code).Inc()
	case observe.Panicked:
		m.panics.get(panicSource{typeOf(e), e.Reason}).Inc()
	default:
		m.observeSending(e)
	}
}

func (m *Metrics) observeRefused(e observe.Event) {
	if e.Count == 0 { // a request or a connection; Completed counts messages
		m.refused.get(refusal{e.Reason, m.code(e.Code)}).Inc()
	}
	if e.Limit != "" {
		m.exceeded.get(limitName(e.Limit)).Inc()
	}
}

func (m *Metrics) observeSending(e observe.Event) {
	switch e.Kind {
	case observe.Written:
		m.sent.Add(float64(e.Bytes))
		m.batchFrames.Observe(float64(e.Count))
		if e.Duration > 0 { // 0 if the call wrote control frames only
			m.waited.Observe(e.Duration.Seconds())
		}
	case observe.Dropped:
		m.dropped.get(e.Policy).Add(float64(e.Count))
		m.exceeded.get(limitName(e.Limit)).Add(float64(e.Count))
	case observe.Conflated:
		m.conflated.Add(float64(e.Count))
	case observe.Published:
		m.fanOut.Observe(float64(e.Count))
	case observe.Delivered:
		m.lag.Observe(e.Duration.Seconds())
	case observe.MessagesLost:
		m.losses.Inc()
		m.lostMessages.Add(float64(e.Count))
	case observe.Shutdown:
		m.shuttingDown.Set(1)
		m.shutdownConns.Add(float64(e.Count))
	case observe.Aborted:
		m.aborted.Add(float64(e.Count))
	}
}

func typeOf(e observe.Event) string {
	if e.Type == "" && (e.Kind == observe.Completed || e.Reason == "ingress") {
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

// A closeCode is a close code, or one value for a group of codes: clients choose their codes and
// must not create series.
type closeCode int

const (
	otherCodes       closeCode = 0
	applicationCodes closeCode = 4000
)

func closeCodeOf(code int) closeCode {
	switch code {
	case 1000, 1001, 1002, 1003, 1005, 1006, 1007, 1008, 1009, 1011, 1012, 1013:
		return closeCode(code)
	}
	if code >= 4000 && code <= 4999 {
		return applicationCodes
	}
	return otherCodes
}

func (c closeCode) label() string {
	switch c {
	case otherCodes:
		return other
	case applicationCodes:
		return "application"
	default:
		return strconv.Itoa(int(c))
	}
}

// limitNames are the values of the label limit: those of the router, and the kinds of limits of the application.
//
//nolint:gochecknoglobals // never changed
var limitNames = []string{
	"router.Limits.Conns", "router.Limits.ConnsPerIP", "router.Limits.ConnsPerUser", "router.FallbackOptions.MaxConns", "router.Limits.HandshakesPerIP",
	"router.Limits.MessagesPerConn", "router.Limits.MessagesPerIP", "router.Limits.MaxMessageBytes", "router.Route.MaxMessageBytes",
	"router.Limits.Elements", "router.Limits.Concurrency", "router.Limits.InboundBytes", "router.Limits.Topics",
	"router.TopicOptions.MaxPerConn", "router.Limits.QueueMessages", "router.Limits.QueueBytes",
	"rate", "payload", "in_flight", "connections", "topics", "session", "queue",
}

// limitName returns the label of a limit or its kind.
func limitName(name string) string {
	if slices.Contains(limitNames, name) {
		return name
	}
	return other
}
