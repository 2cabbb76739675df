package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/penstock-go/penstock/run/observe"
)

// A runStart is the outcome of a start of a run.
type runStart string

// A runEnd is the state in which a run has ended.
type runEnd string

// A runCount is the name of a counter of runs without labels.
type runCount string

// runSeries holds the series about runs. They are created at the first event of their kind, so a program without
// runs has none. Those that alerts query are created when the first run begins.
type runSeries struct {
	begun                      sync.Once
	active, readers            cache[struct{}, prometheus.Gauge]
	starts                     cache[runStart, prometheus.Counter]
	ends                       cache[runEnd, prometheus.Counter]
	counts                     cache[runCount, prometheus.Counter]
	tokens                     cache[string, prometheus.Counter]
	durations, firsts, stopped cache[struct{}, prometheus.Observer]
}

func (m *Metrics) defineRuns() {
	gauge := func(c *cache[struct{}, prometheus.Gauge], name, help string) {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, nil)
		m.all = append(m.all, v)
		c.make = func(struct{}) prometheus.Gauge { return v.WithLabelValues() }
	}
	gauge(&m.runs.active, "runs_active", "Runs whose producers run on this node.")
	gauge(&m.runs.readers, "run_readers", "Readers of runs on this node.")
	histogram := func(c *cache[struct{}, prometheus.Observer], name, help string, buckets []float64) {
		v := m.histograms(name, help, buckets)
		c.make = func(struct{}) prometheus.Observer { return v.WithLabelValues() }
	}
	histogram(&m.runs.durations, "run_duration_seconds", "Time from the start to the end of a run, in seconds.", []float64{.1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600})
	histogram(&m.runs.firsts, "run_first_item_seconds", "Time from the start of a run until its first item is stored, in seconds.", seconds(.001))
	histogram(&m.runs.stopped, "run_stop_seconds", "Time from a request to stop a run until its end is stored, in seconds.", seconds(.001))

	starts := m.counters("runs_started_total", "Starts of runs, by outcome: started, resumed, repeated or refused.", "outcome")
	m.runs.starts.make = func(outcome runStart) prometheus.Counter { return starts.WithLabelValues(string(outcome)) }
	ends := m.counters("runs_ended_total", "Runs that this node has ended, by state.", "state")
	m.runs.ends.make = func(state runEnd) prometheus.Counter { return ends.WithLabelValues(string(state)) }
	tokens := m.counters("run_budget_tokens_total", "Tokens of budgets, by kind: taken, or used by runs that are settled.", "kind")
	m.runs.tokens.make = func(kind string) prometheus.Counter { return tokens.WithLabelValues(kind) }
	help := map[runCount]string{
		"run_items_total":      "Items of runs that are stored.",
		"run_bytes_total":      "Bytes of these items.",
		"run_batches_total":    "Entries of logs in which these items are stored.",
		"run_attach_total":     "Readers that have attached to runs.",
		"run_fenced_total":     "Runs of this node that another node has ended.",
		"run_lease_lost_total": "Producers that were canceled because the lease may have expired.",
	}
	counters := map[runCount]*prometheus.CounterVec{}
	for name, text := range help {
		counters[name] = m.counters(string(name), text)
	}
	m.runs.counts.make = func(name runCount) prometheus.Counter { return counters[name].WithLabelValues() }
}

// begin creates the series whose first increase fires an alert.
func (s *runSeries) begin() {
	s.counts.get("run_fenced_total")
	s.counts.get("run_lease_lost_total")
	for _, state := range []runEnd{"completed", "failed", "stopped", "interrupted", "exhausted", "expired"} {
		s.ends.get(state)
	}
}

// Run counts an event of runs; pass it as Options.Observe of package run. It is safe for concurrent use.
func (m *Metrics) Run(e observe.Event) {
	one := struct{}{}
	m.runs.begun.Do(m.runs.begin)
	switch e.Kind {
	case observe.Started:
		m.runs.starts.get("started").Inc()
		m.runs.active.get(one).Inc()
	case observe.Resumed:
		m.runs.starts.get("resumed").Inc()
		m.runs.active.get(one).Inc()
	case observe.Repeated:
		m.runs.starts.get("repeated").Inc()
	case observe.Refused:
		m.runs.starts.get("refused").Inc()
	case observe.Ended:
		m.runs.ends.get(runEnd(e.State)).Inc()
		m.runs.durations.get(one).Observe(e.Duration.Seconds())
	case observe.Left:
		m.runs.active.get(one).Dec()
	case observe.Abandoned:
		m.runs.ends.get(runEnd(e.State)).Inc()
	case observe.FirstItem:
		m.runs.firsts.get(one).Observe(e.Duration.Seconds())
	case observe.Batch:
		m.runs.counts.get("run_batches_total").Inc()
		m.runs.counts.get("run_items_total").Add(float64(e.Count))
		m.runs.counts.get("run_bytes_total").Add(float64(e.Bytes))
	case observe.Attached:
		m.runs.counts.get("run_attach_total").Inc()
		m.runs.readers.get(one).Inc()
	case observe.Detached:
		m.runs.readers.get(one).Dec()
	case observe.Stopped:
		m.runs.stopped.get(one).Observe(e.Duration.Seconds())
	case observe.Fenced:
		m.runs.counts.get("run_fenced_total").Inc()
	case observe.LeaseLost:
		m.runs.counts.get("run_lease_lost_total").Inc()
	case observe.TokensTaken:
		m.runs.tokens.get("taken").Add(float64(e.Count))
	case observe.TokensUsed:
		m.runs.tokens.get("used").Add(float64(e.Count))
	}
}
