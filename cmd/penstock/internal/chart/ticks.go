package chart

import (
	"strconv"
	"time"

	"gonum.org/v1/plot"
)

// timeTicks marks round times of the clock on an axis of seconds since 1970.
type timeTicks struct{}

// mostTicks is how many labels a picture's width holds.
const mostTicks = 12

// Ticks implements plot.Ticker. The first mark, and every one on another day than the one
// before, tells its date too.
func (timeTicks) Ticks(least, most float64) []plot.Tick {
	step := tickStep(most - least)
	var ticks []plot.Tick
	date := ""
	first := time.UnixMicro(int64(least * 1e6)).UTC()
	for at := first.Truncate(step); ; at = at.Add(step) {
		x := float64(at.UnixMicro()) / 1e6
		if x > most {
			return ticks
		}
		if x < least {
			continue
		}
		label, day := at.Format(timeLayout(step)), at.Format("2 Jan 2006")
		switch {
		case label == day:
		case day != date:
			label += "\n" + day
		default:
			label += "\n " // of as many lines as the others, lest it stand lower
		}
		date = day
		ticks = append(ticks, plot.Tick{Value: x, Label: label})
	}
}

// tickStep returns the shortest round time that does not mark a span of seconds too often.
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
		if span/step.Seconds() <= mostTicks {
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

// rateTicks are the library's marks, with labels without exponents up to a million.
type rateTicks struct{}

// Ticks implements plot.Ticker.
func (rateTicks) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	for i := range ticks {
		if ticks[i].Label != "" && ticks[i].Value < 1e7 {
			ticks[i].Label = strconv.FormatFloat(ticks[i].Value, 'f', -1, 64)
		}
	}
	return ticks
}
