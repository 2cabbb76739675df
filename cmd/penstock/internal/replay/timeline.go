package replay

import (
	"slices"
	"time"
)

// A Timeline sums tokens over time steps of equal length. It has at most maxSteps steps: if a trace
// needs more, the steps become longer.
type Timeline struct {
	width      int           // index in widths()
	stepLength time.Duration // widths()[width]
	first      int64         // the first step's number, counted in steps since 1970
	at         int           // the index of the current request's step
	rows       [][]float64   // demand, then the admitted tokens of each policy
}

func newTimeline(policies int) Timeline {
	return Timeline{stepLength: widths()[0], rows: make([][]float64, 1+policies)}
}

const maxSteps = 1024

// widths are the lengths of a step. Each is a multiple of the previous one, so that steps can be
// merged. The longest one covers maxSpan.
func widths() []time.Duration {
	const ms, day = time.Millisecond, 24 * time.Hour
	return []time.Duration{
		ms, 2 * ms, 10 * ms, 20 * ms, 100 * ms, 200 * ms,
		time.Second, 2 * time.Second, 10 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 12 * time.Hour, day, 7 * day, 28 * day, 364 * day,
	}
}

// begin adds a request to the demand and makes it the current one.
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

// admit adds the current request to the admitted tokens of a policy.
func (t *Timeline) admit(policy int, cost int64) { t.rows[1+policy][t.at] += float64(cost) }

func (t *Timeline) step(micros int64) int64 {
	return floorDiv(micros, t.stepLength.Microseconds())
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// extend adds empty steps before and after the existing ones.
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

// coarsen merges steps into the next longer ones. It returns the step of a time, and the number of
// steps.
func (t *Timeline) coarsen(micros int64) (step, n int64) {
	all := widths()
	factor := int64(all[t.width+1] / all[t.width])
	t.width++
	t.stepLength = all[t.width]
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

// Coarsen merges steps until there are at most limit.
func (t *Timeline) Coarsen(limit int) {
	longest := len(widths()) - 1
	for len(t.rows[0]) > limit && t.width < longest {
		t.coarsen(0)
	}
}

// Start returns the start of the first step.
func (t *Timeline) Start() time.Time {
	return time.UnixMicro(t.first * t.Step().Microseconds()).UTC()
}

// Step returns the length of a step.
func (t *Timeline) Step() time.Duration { return t.stepLength }

// Demand returns the requested tokens per step.
func (t *Timeline) Demand() []float64 { return t.rows[0] }

// Admitted returns the tokens per step that a policy admitted.
func (t *Timeline) Admitted(policy int) []float64 { return t.rows[1+policy] }
