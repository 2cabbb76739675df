package replay

import (
	"slices"
	"time"
)

// A Timeline sums up tokens over equal steps of time. It holds up to maxSteps of them: where a
// trace is longer, the steps become longer too.
type Timeline struct {
	width int           // index in widths
	lasts time.Duration // widths()[width]
	first int64         // the first step's number, counted in steps since 1970
	at    int           // the step of the call at hand
	rows  [][]float64   // of all calls, and of each policy's
}

func newTimeline(policies int) Timeline {
	return Timeline{lasts: widths()[0], rows: make([][]float64, 1+policies)}
}

const maxSteps = 1024

// widths are what a step may last, each a multiple of the one before, so that steps can be
// merged. The longest serves for all the time that a replay can take.
func widths() []time.Duration {
	const ms, day = time.Millisecond, 24 * time.Hour
	return []time.Duration{
		ms, 2 * ms, 10 * ms, 20 * ms, 100 * ms, 200 * ms,
		time.Second, 2 * time.Second, 10 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 12 * time.Hour, day, 7 * day, 28 * day, 364 * day,
	}
}

// begin adds a call to the demand.
func (t *Timeline) begin(micros, cost int64) {
	step := t.step(micros)
	switch n := int64(len(t.rows[0])); {
	case n == 0:
		t.first = step
		t.extend(0, 1)
	case step < t.first:
		for t.first+n-step > maxSteps {
			step, n = t.coarsen(micros)
		}
		t.extend(int(t.first-step), 0)
		t.first = min(t.first, step)
	case step >= t.first+n:
		for step-t.first >= maxSteps {
			step, n = t.coarsen(micros)
		}
		t.extend(0, int(step-t.first-n+1))
	}
	t.at = int(step - t.first)
	t.rows[0][t.at] += float64(cost)
}

// admit adds the call at hand to what a policy admitted.
func (t *Timeline) admit(policy int, cost int64) { t.rows[1+policy][t.at] += float64(cost) }

func (t *Timeline) step(micros int64) int64 {
	return floorDiv(micros, t.lasts.Microseconds())
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// extend puts so many empty steps before and after the ones there are.
func (t *Timeline) extend(before, after int) {
	for i, row := range t.rows {
		if before > 0 {
			row = slices.Concat(make([]float64, before), row)
		}
		for range after {
			row = append(row, 0)
		}
		t.rows[i] = row
	}
}

// coarsen merges steps into the next longer ones. It returns the step of a time, and
// how many steps there are.
func (t *Timeline) coarsen(micros int64) (step, n int64) {
	all := widths()
	factor := int64(all[t.width+1] / all[t.width])
	t.width++
	t.lasts = all[t.width]
	first := floorDiv(t.first, factor)
	for i, row := range t.rows {
		merged := row[:0]
		for j, value := range row {
			if k := int(floorDiv(t.first+int64(j), factor) - first); k < len(merged) {
				merged[k] += value
			} else {
				merged = append(merged, value)
			}
		}
		t.rows[i] = merged
	}
	t.first = first
	return t.step(micros), int64(len(t.rows[0]))
}

// Coarsen makes the steps longer until there are at most so many.
func (t *Timeline) Coarsen(most int) {
	longest := len(widths()) - 1
	for len(t.rows[0]) > most && t.width < longest {
		t.coarsen(0)
	}
}

// Start returns when the first step begins.
func (t *Timeline) Start() time.Time {
	return time.UnixMicro(t.first * t.Step().Microseconds()).UTC()
}

// Step returns how long a step lasts.
func (t *Timeline) Step() time.Duration { return t.lasts }

// Demand returns how many tokens were asked for, step by step.
func (t *Timeline) Demand() []float64 { return t.rows[0] }

// Admitted returns how many of them a policy let pass.
func (t *Timeline) Admitted(policy int) []float64 { return t.rows[1+policy] }
