package chart

import (
	"io"
	"time"

	"gonum.org/v1/plot/plotter"
)

// A Load is what a load test has measured over time. Its slices have the same length: one value for
// each step since the beginning.
type Load struct {
	Title         string
	Step, Elapsed time.Duration
	Due, Answered []float64 // messages per step
	P50, P99, Max []time.Duration
}

// WriteLoad draws the rate, and below it the latency.
func WriteLoad(w io.Writer, kind Kind, l Load) error {
	begin := time.Unix(0, 0)
	rate := Panel{
		Title: l.Title, Start: begin, Step: l.Step, First: begin, Last: begin.Add(l.Elapsed), Demand: l.Due, Admitted: l.Answered,
		names: []string{"due", "rejected or not answered", "answered"}, unit: "messages/s",
	}
	upper, err := rate.plot(true)
	if err != nil {
		return err
	}
	lower, err := l.latency()
	if err != nil {
		return err
	}
	upper.X.Tick.Marker, lower.X.Tick.Marker = rateTicks{}, rateTicks{}
	lower.X.Label.Text = "seconds after the warm-up"
	return writeRows(w, kind, l.Title, []*row{upper, lower})
}

// latency draws the maximum, p99 and p50 as areas, the smaller over the larger.
func (l *Load) latency() (*row, error) {
	out := newRow("latency of the messages that were due at a time", "milliseconds")
	for _, series := range []struct {
		name   string
		values []time.Duration
		color  rgb
	}{{"maximum", l.Max, maximumColor}, {"p99", l.P99, rejectedColor}, {"p50", l.P50, admittedColor}} {
		var points plotter.XYs
		for i, d := range series.values {
			points = append(points, plotter.XY{X: float64(i) * l.Step.Seconds(), Y: float64(d.Microseconds()) / 1000})
			points = append(points, plotter.XY{X: float64(i+1) * l.Step.Seconds(), Y: float64(d.Microseconds()) / 1000})
		}
		if err := out.area(series.name, points, series.color); err != nil {
			return nil, err
		}
	}
	return out, nil
}
