package chart

import (
	"strconv"
	"time"

	"gonum.org/v1/plot"
)

// timeTicks marks round clock times on an axis in seconds since 1970.
type timeTicks struct{}

// maxTicks is how many labels fit into the width of the image.
const maxTicks = 12

// Ticks implements plot.Ticker. The first label and the first of each day include the date.
func (timeTicks) Ticks(lower, upper float64) []plot.Tick {
	step := tickStep(upper - lower)
	var ticks []plot.Tick
	date := ""
	first := time.UnixMicro(int64(lower * 1e6)).UTC()
	for at := first.Truncate(step); ; at = at.Add(step) {
		x := float64(at.UnixMicro()) / 1e6
		if x > upper {
			return ticks
		}
		if x < lower {
			continue
		}
		label, day := at.Format(timeLayout(step)), at.Format("2 Jan 2006")
		switch {
		case label == day:
		case day != date:
			label += "\n" + day
		default:
			label += "\n " // all labels must have two lines to be aligned
		}
		date = day
		ticks = append(ticks, plot.Tick{Value: x, Label: label})
	}
}

// tickStep returns the shortest round step that marks a span of seconds at most maxTicks times.
func tickStep(span float64) time.Duration {
	const ms, day = time.Millisecond, 24 * time.Hour
	steps := []time.Duration{
		ms, 2 * ms, 5 * ms, 10 * ms, 20 * ms, 50 * ms, 100 * ms, 200 * ms, 500 * ms,
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
		day, 2 * day, 7 * day, 14 * day, 28 * day, 91 * day, 182 * day, 364 * day,
	}
	for _, step := range steps {
		if span/step.Seconds() <= maxTicks {
			return step
		}
	}
	return 3 * 364 * day
}

func timeLayout(step time.Duration) string {
	switch {
	case step < time.Second:
		return "15:04:05.000"
	case step < time.Minute:
		return "15:04:05"
	case step >= 24*time.Hour:
		return "2 Jan 2006"
	}
	return "15:04"
}

// rateTicks are the default ticks of the plot library, with labels without exponents below 1e7.
type rateTicks struct{}

// Ticks implements plot.Ticker.
func (rateTicks) Ticks(lower, upper float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(lower, upper)
	for i := range ticks {
		if ticks[i].Label != "" && ticks[i].Value < 1e7 {
			ticks[i].Label = strconv.FormatFloat(ticks[i].Value, 'f', -1, 64)
		}
	}
	return ticks
}
