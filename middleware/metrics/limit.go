package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/observe"
)

type decision struct {
	limit   string
	kind    observe.Kind
	outcome observe.Outcome
	reason  limit.Reason
	dryRun  bool
}

// limitSeries holds the series of one limit, except its decisions.
type limitSeries struct {
	duration  prometheus.Observer
	errors    prometheus.Counter
	fallbacks prometheus.Counter
	open      prometheus.Gauge
}

func (m *Metrics) defineLimits() {
	decisions := m.counters("limit_decisions_total", "Decisions of a limit, by kind, outcome, why the limiter denied, and whether the limit is enforced or a dry run.",
		"limit", "kind", "outcome", "reason", "mode")
	m.decisions.make = func(d decision) prometheus.Counter {
		mode := "enforced"
		if d.dryRun {
			mode = "dry_run"
		}
		decisions.WithLabelValues(d.limit, limitName(string(d.kind)), outcomeName(observe.Rejected), "", mode) // creates the series with the value 0
		return decisions.WithLabelValues(d.limit, limitName(string(d.kind)), outcomeName(d.outcome), d.reason.String(), mode)
	}
	duration := m.histograms("limiter_call_duration_seconds",
		"Duration of the calls of a limiter, including failed ones, in seconds.", seconds(1e-6), "limit")
	failed := m.counters("limiter_errors_total", "Calls of a limiter that failed.", "limit")
	fallbacks := m.counters("limiter_fallbacks_total", "Messages that the fallback limiter decided, because the limiter failed.", "limit")
	open := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "limiter_breaker_open",
		Help: "Circuit breakers that are open in this process: calls of the limiter are paused because it failed.",
	}, []string{"limit"})
	m.all = append(m.all, open)
	m.limits.make = func(name string) *limitSeries {
		return &limitSeries{duration.WithLabelValues(name), failed.WithLabelValues(name), fallbacks.WithLabelValues(name), open.WithLabelValues(name)}
	}
}

// Limit records an observation; pass it as Options.Observe of package ratelimit or httplimit. A limit
// without a name gets the label limit="unnamed". Limit allocates only for a new series. It is safe
// for concurrent use.
func (m *Metrics) Limit(o observe.Observation) {
	name := o.Limit
	if name == "" {
		name = "unnamed"
	}
	s := m.limits.get(name)
	switch o.Outcome {
	case observe.BreakerOpened:
		s.open.Inc() // not Set: several limits may have the same name
		return
	case observe.BreakerClosed:
		s.open.Dec()
		return
	}
	m.decisions.get(decision{name, o.Kind, o.Outcome, o.Reason, o.DryRun}).Inc()
	if o.Called {
		s.duration.Observe(o.Duration.Seconds())
	}
	if o.Called && o.Err != nil {
		s.errors.Inc()
	}
	if o.Fallback {
		s.fallbacks.Inc()
	}
}

func outcomeName(o observe.Outcome) string {
	names := [...]string{
		observe.Admitted: "admitted", observe.Delayed: "delayed", observe.ChargedOverLimit: "charged_over_limit", observe.Rejected: "rejected",
		observe.NeverAllowed: "never_allowed", observe.Failed: "failed", observe.FailedOpen: "failed_open", observe.Canceled: "canceled",
		observe.Exempt: "exempt", observe.Denied: "denied",
	}
	if int(o) < len(names) && names[o] != "" {
		return names[o]
	}
	return other
}
