// Package load sends calls to a server at a fixed rate and measures the answers.
//
// Arrivals are an open loop: call number n is due n/rate after the start, whether or not earlier
// calls have been answered, and its latency begins when it is due. A server that stops for a second
// therefore delays all calls of that second, and not only the one that was in progress.
package load

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// Options describe a load.
type Options struct {
	URL         string // of the WebSocket endpoint
	Header      http.Header
	Type        string // of the calls
	Payload     string // JSON; {{n}} is the number of the call, and {{conn}} that of the connection
	Connections int
	Ramp        float64 // connections opened per second
	Rate        float64 // calls per second, over all connections
	Warmup      time.Duration
	Duration    time.Duration // after the warm-up
	Timeout     time.Duration // of a handshake, and of an answer
}

// A Report is what a load has measured. Calls of the warm-up are in no number of it.
type Report struct {
	Connections int           // that were open at the start
	Elapsed     time.Duration // after the warm-up
	Sent        int64         // calls that were written
	Answered    int64         // calls with a reply
	Unanswered  int64         // calls without an answer before the timeout or the end of their connection
	NotSent     int64         // calls that were due while their connection was lost or blocked

	Rejected map[string]int64 // calls with an error, by its code
	Refused  map[string]int64 // handshakes that failed, by the reason
	Lost     map[int]int64    // connections that the server has closed, by the close code; 1006 without a close frame

	RetryAfter time.Duration // the longest of the rejections

	P50, P90, P99, P999, Max time.Duration // latency of the replies

	CPU float64 // of this process, as a part of all its processors; negative if the system does not report it
}

// run collects the results of all connections.
type run struct {
	*Options
	start, measured, end time.Time

	mu        sync.Mutex
	report    Report
	latencies histogram
}

// Run runs the load. If ctx ends, the report describes the part until then. An error means that no
// connection could be opened.
func Run(ctx context.Context, o Options) (*Report, error) {
	r := &run{Options: &o, report: Report{Rejected: map[string]int64{}, Refused: map[string]int64{}, Lost: map[int]int64{}}}
	conns, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	r.report.Connections = len(conns)
	r.start = time.Now()
	r.measured = r.start.Add(o.Warmup)
	r.end = r.measured.Add(o.Duration)
	cpu := cpuTime()
	ctx, cancel := context.WithDeadline(ctx, r.end)
	defer cancel()
	var running sync.WaitGroup
	for i, c := range conns {
		running.Go(func() { c.load(ctx, i, len(conns)) })
	}
	<-ctx.Done()
	ended := time.Now()
	if used := cpuTime() - cpu; cpu >= 0 {
		r.report.CPU = used.Seconds() / (ended.Sub(r.start).Seconds() * float64(runtime.GOMAXPROCS(0)))
	} else {
		r.report.CPU = -1
	}
	running.Wait()
	r.report.Elapsed = max(ended.Sub(r.measured), 0)
	h := &r.latencies
	r.report.P50, r.report.P90, r.report.P99, r.report.P999, r.report.Max =
		h.percentile(50), h.percentile(90), h.percentile(99), h.percentile(99.9), h.max
	return &r.report, nil
}

// open opens the connections at the rate of the ramp.
func (r *run) open(ctx context.Context) ([]*conn, error) {
	var all []*conn
	var first error
	var opening sync.WaitGroup
	start := time.Now()
	for n := range r.Connections {
		if !sleepUntil(ctx, start.Add(time.Duration(float64(n)/r.Ramp*float64(time.Second)))) {
			break
		}
		opening.Go(func() {
			c, err := r.dial(ctx)
			r.mu.Lock()
			defer r.mu.Unlock()
			if err == nil {
				all = append(all, c)
				return
			}
			r.report.Refused[refusal(err)]++
			if first == nil {
				first = err
			}
		})
	}
	opening.Wait()
	switch {
	case len(all) > 0:
		return all, nil
	case first == nil:
		return nil, errors.New("interrupted before a connection was open")
	default:
		return nil, fmt.Errorf("no connection could be opened: %w", first)
	}
}

// due returns when the call number n of a connection is due: the connections take turns.
func (r *run) due(index, n, conns int) (number int64, at time.Time) {
	number = int64(n)*int64(conns) + int64(index)
	return number, r.start.Add(time.Duration(float64(number) / r.Rate * float64(time.Second)))
}

// sleepUntil reports whether t has come before ctx is done.
func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// count calls f, with the lock held, for a call that was due at a time, unless it belongs to the warm-up.
func (r *run) count(due time.Time, f func(*Report)) {
	if due.Before(r.measured) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.report)
}

// refusal returns the status of a failed handshake, or the kind of its error.
func refusal(err error) string {
	if status, ok := errors.AsType[statusError](err); ok {
		return "status " + strconv.Itoa(status.code)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "no connection"
}
