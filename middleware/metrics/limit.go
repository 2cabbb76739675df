package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

type decision struct {
	policy  string
	kind    router.LimitKind
	outcome ratelimit.Outcome
	dryRun  bool
}

// A policy is what there is of a limit besides its decisions.
type policy struct {
	took      prometheus.Observer
	errors    prometheus.Counter
	fallbacks prometheus.Counter
	open      prometheus.Gauge
}

func (m *Metrics) defineLimits() {
	decisions := m.counters("limit_decisions_total", "Messages that a limit has decided about, by what it decided, and whether it was a dry run.",
		"policy", "kind", "outcome", "mode")
	m.decisions.make = func(d decision) prometheus.Counter {
		mode := "enforced"
		if d.dryRun {
			mode = "dry_run"
		}
		decisions.WithLabelValues(d.policy, limitKind(d.kind), outcomeName(ratelimit.Refused), mode) // begins at 0
		return decisions.WithLabelValues(d.policy, limitKind(d.kind), outcomeName(d.outcome), mode)
	}
	took := m.histograms("limiter_call_duration_seconds", "Time of calls of a limiter, failed ones included.", seconds(1e-6), "policy")
	failed := m.counters("limiter_errors_total", "Calls of a limiter that have failed.", "policy")
	fallbacks := m.counters("limiter_fallbacks_total", "Messages that the fallback was asked about.", "policy")
	open := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "limiter_breaker_open", Help: "Whether a limiter is left alone because it has failed: 1 if so.",
	}, []string{"policy"})
	m.all = append(m.all, open)
	m.policies.make = func(name string) *policy {
		return &policy{took.WithLabelValues(name), failed.WithLabelValues(name), fallbacks.WithLabelValues(name), open.WithLabelValues(name)}
	}
}

// Limit is for ratelimit.Options.Observe. A limit without a name is called "unnamed". It
// allocates nothing but for a new series.
func (m *Metrics) Limit(o ratelimit.Observation) {
	name := o.Limit
	if name == "" {
		name = "unnamed"
	}
	p := m.policies.get(name)
	switch o.Outcome {
	case ratelimit.BreakerOpened:
		p.open.Inc() // there may be several limits of a name
		return
	case ratelimit.BreakerClosed:
		p.open.Dec()
		return
	}
	m.decisions.get(decision{name, o.Kind, o.Outcome, o.DryRun}).Inc()
	if o.Asked {
		p.took.Observe(o.Took.Seconds())
	}
	if o.Asked && o.Err != nil {
		p.errors.Inc()
	}
	if o.Fallback {
		p.fallbacks.Inc()
	}
}

func outcomeName(o ratelimit.Outcome) string {
	switch o {
	case ratelimit.Admitted:
		return "admitted"
	case ratelimit.AdmittedLater:
		return "admitted_later"
	case ratelimit.Charged:
		return "charged"
	case ratelimit.Refused:
		return "refused"
	case ratelimit.RefusedForever:
		return "refused_forever"
	case ratelimit.Undecided:
		return "undecided"
	case ratelimit.UndecidedEnters:
		return "undecided_enters"
	case ratelimit.Cancelled:
		return "cancelled"
	default:
		return other
	}
}
