package chart

import (
	"image/color"
	"io"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// A Load is what a load test has measured over time. Its slices have the same length: one value for
// each step since the beginning.
type Load struct {
	Title         string
	Step          time.Duration
	Due, Answered []float64 // messages per step
	P50, P99, Max []time.Duration
}

// WriteLoad draws the rate, and below it the latency.
func WriteLoad(w io.Writer, kind Kind, l Load) error {
	rate := Panel{Title: l.Title, Start: time.Unix(0, 0), Step: l.Step, Demand: l.Due, Admitted: l.Answered, names: []string{"due", "rejected or not answered", "answered"}, unit: "messages/s"}
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
	return writePlots(w, kind, l.Title, [][]*plot.Plot{{upper}, {lower}})
}

// latency draws the maximum, p99 and p50 as areas, the smaller over the larger.
func (l *Load) latency() (*plot.Plot, error) {
	out := newPlot("latency of the messages that were due at a time", "milliseconds")
	addLegend(out)
	for _, series := range []struct {
		name   string
		values []time.Duration
		color  color.Color
	}{{"maximum", l.Max, maximumColor}, {"p99", l.P99, rejectedColor}, {"p50", l.P50, admittedColor}} {
		var points plotter.XYs
		for i, d := range series.values {
			points = append(points, plotter.XY{X: float64(i) * l.Step.Seconds(), Y: float64(d.Microseconds()) / 1000})
			points = append(points, plotter.XY{X: float64(i+1) * l.Step.Seconds(), Y: float64(d.Microseconds()) / 1000})
		}
		area, err := curve(points, series.color, nil)
		if err != nil {
			return nil, err
		}
		out.Add(area)
		out.Legend.Add(series.name, area)
	}
	out.Y.Min, out.Y.Max = 0, max(out.Y.Max*1.05, 1e-9)
	return out, nil
}
