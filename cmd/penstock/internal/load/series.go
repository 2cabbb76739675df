package load

import (
	"context"
	"time"
)

// A Step is a part of the time of a load. Its numbers are those of the messages that were due in it.
type Step struct {
	Due, Answered, Rejected int64
	Latency                 Percentiles
}

// step collects a Step.
type step struct {
	due, answered, rejected int64
	latencies               histogram
}

// A series collects the steps of a load.
type series struct {
	step time.Duration
	all  []*step
}

// maxSteps bounds the memory of a series: each step has a histogram of 60 KB.
const maxSteps = 120

func (s *series) begin(d time.Duration) {
	for _, step := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second} {
		if s.step = step; d <= maxSteps*step {
			return
		}
	}
	s.step = (d/maxSteps + time.Second).Truncate(time.Second)
}

// at returns the step of a time since the end of the warm-up.
func (s *series) at(d time.Duration) *step {
	for len(s.all) <= int(d/s.step) {
		s.all = append(s.all, &step{})
	}
	return s.all[d/s.step]
}

// report returns the steps until a time.
func (s *series) report(elapsed time.Duration) []Step {
	steps := make([]Step, int((elapsed+s.step-1)/s.step))
	for i, one := range s.all[:min(len(s.all), len(steps))] {
		steps[i] = Step{one.due, one.answered, one.rejected, one.latencies.percentiles()}
	}
	return steps
}

// A Progress describes a load that is not finished.
type Progress struct {
	Opening     bool // the connections are not all open
	Connections int  // that are open
	Elapsed     time.Duration
	Total       time.Duration // with the warm-up
	Answered    int64         // in the last second
	Latency     Percentiles   // in the last second
	Rejected    int64         // since the end of the warm-up
}

// recent is what was measured since the last progress.
type recent struct{ histogram }

const progressInterval = time.Second

// reportOpening calls Progress every second until ctx is done.
func (r *run) reportOpening(ctx context.Context) {
	if r.Progress == nil {
		return
	}
	for at := time.Now().Add(progressInterval); sleepUntil(ctx, at); at = at.Add(progressInterval) {
		r.Progress(Progress{Opening: true, Connections: int(r.live.Load())})
	}
}

// reportProgress calls Progress every second until ctx is done.
func (r *run) reportProgress(ctx context.Context) {
	if r.Progress == nil {
		return
	}
	for at := r.start.Add(progressInterval); sleepUntil(ctx, at); at = at.Add(progressInterval) {
		p := Progress{Connections: int(r.live.Load()), Elapsed: at.Sub(r.start), Total: r.Warmup + r.Duration}
		r.mu.Lock()
		p.Answered, p.Latency = r.recent.total, r.recent.percentiles()
		r.recent = recent{}
		for _, n := range r.report.Rejected {
			p.Rejected += n
		}
		r.mu.Unlock()
		r.Progress(p)
	}
}
