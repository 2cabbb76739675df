// Package load sends messages to a server at a fixed rate, and measures the answers and which
// connections receive the publications that result.
//
// Arrivals are an open loop: message number n is due n/rate seconds after the start, whether or not
// earlier ones have been answered, and its latency begins when it is due. A server that stops for a
// second therefore delays all messages of that second, and not only the one that was in progress.
package load

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// A Message is a type and a payload in JSON, in which {{n}} is the number of the message, {{conn}}
// that of its connection, and {{mark}} a text by which publications are recognized.
type Message struct{ Type, Payload string }

// Options describe a load.
type Options struct {
	URL     string                     // of the WebSocket endpoint
	Header  func(conn int) http.Header // of the handshake of a connection; may be nil
	Setup   []Message                  // calls that each connection makes when it has been opened
	Topic   string                     // to which all connections subscribe; "" is none
	Message                            // to send; without a type, nothing is sent
	Event   bool                       // the messages have no reply, so their acknowledgments are measured

	Reconnect   bool // opens lost connections again
	Connections int
	Ramp        float64 // connections opened per second
	Rate        float64 // messages per second, over all connections
	Warmup      time.Duration
	Duration    time.Duration // after the warm-up
	Timeout     time.Duration // of a handshake with its setup, and at the end of what has not arrived

	Progress func(Progress) // called every second; may be nil
}

// A Report is what a load has measured. Messages of the warm-up are in no number of it.
type Report struct {
	Connections int           // that were open at the start
	Elapsed     time.Duration // after the warm-up
	Sent        int64         // messages that were written
	Answered    int64         // calls with a reply, and events with an acknowledgment
	Unanswered  int64         // messages without an answer before the timeout or the end of their connection
	NotSent     int64         // messages that were due while their connection was lost or blocked

	Rejected map[string]int64 // messages with an error, by its code
	Refused  map[string]int64 // connections that could not be opened, by the reason
	Lost     map[int]int64    // connections that have ended, by the close code; 1006 without a close frame

	Reopened int64       // connections in place of those that were lost
	Outages  Percentiles // from the loss of a connection until another one was open

	RetryAfter time.Duration // the longest of the rejections

	Latency Percentiles // of the answers, except rejections
	Late    Percentiles // from the time at which a message was due to its sending, unless its connection was blocked
	Reach   *Reach      // nil if nothing is expected to be received

	Step  time.Duration // of Steps
	Steps []Step        // of the time after the warm-up

	CPU float64 // of this process, as a part of all its processors; negative if the system does not report it
}

// run collects the results of all connections.
type run struct {
	*Options
	payload template
	reach   reach // nil if nothing is expected to be received

	conns                int       // open at the start; set with the times below
	start, measured, end time.Time // set when all connections are open

	live    atomic.Int64 // connections that are open
	closing atomic.Bool  // the load closes its connections

	mu        sync.Mutex
	report    Report
	latencies histogram
	lateness  histogram
	outages   histogram
	series    series
	recent    recent
}

// Run runs the load. If ctx ends, the report describes the part until then. An error means that no
// connection could be opened.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := checkDescriptors(o.Connections); err != nil {
		return nil, err
	}
	r := &run{Options: &o, payload: parse(o.Payload)}
	r.report = Report{Rejected: map[string]int64{}, Refused: map[string]int64{}, Lost: map[int]int64{}}
	r.reach = newReach(r)
	conns, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	if r.reach != nil && r.Warmup == 0 {
		r.reach.begin(ctx, conns) // before the first message is sent
	}
	r.begin(conns)
	conns = r.load(ctx, conns)
	r.close(conns)
	r.finish()
	return &r.report, nil
}

// close closes the connections with a close frame, so that the server does not count them as lost.
func (r *run) close(conns []*conn) {
	r.closing.Store(true)
	var closing sync.WaitGroup
	for _, c := range conns {
		closing.Go(func() {
			_ = c.ws.Close(websocket.StatusNormalClosure, "") // gives up after a few seconds
			<-c.closed
			c.countUnanswered()
		})
	}
	closing.Wait()
}

func (r *run) begin(conns []*conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, c := range conns {
		c.turn = i
	}
	r.conns, r.report.Connections = len(conns), len(conns)
	r.start = time.Now()
	r.measured = r.start.Add(r.Warmup)
	r.end = r.measured.Add(r.Duration)
	r.series.begin(r.Duration)
}

// load sends until the end, and then waits for what has not arrived. It returns the connections that
// are left, or were lost and not replaced.
func (r *run) load(ctx context.Context, conns []*conn) []*conn {
	cpu := cpuTime()
	sending, stopSending := context.WithDeadline(ctx, r.end.Add(r.Timeout)) // what is due may be late
	defer stopSending()
	ctx, cancel := context.WithDeadline(ctx, r.end)
	defer cancel()
	var running sync.WaitGroup
	last := make([]*conn, len(conns))
	for i, c := range conns {
		running.Go(func() { last[i] = r.keep(ctx, sending, c) })
	}
	running.Go(func() { r.reportProgress(ctx) })
	if r.reach != nil && r.Warmup > 0 && sleepUntil(ctx, r.measured) {
		r.reach.begin(ctx, conns)
	}
	<-ctx.Done()
	ended := time.Now()
	r.report.CPU = -1
	if used := cpuTime() - cpu; cpu >= 0 {
		r.report.CPU = used.Seconds() / (max(ended.Sub(r.start).Seconds(), 1e-9) * float64(runtime.GOMAXPROCS(0)))
	}
	running.Wait()
	r.report.Elapsed = max(ended.Sub(r.measured), 0)
	waiting, stop := context.WithTimeout(context.Background(), r.Timeout)
	defer stop()
	for _, c := range last {
		c.awaitAnswers(waiting)
	}
	if r.reach != nil {
		r.report.Reach = r.reach.end(waiting, last)
	}
	return last
}

func (r *run) finish() {
	r.report.Latency, r.report.Late = r.latencies.percentiles(), r.lateness.percentiles()
	r.report.Outages = r.outages.percentiles()
	r.report.Step, r.report.Steps = r.series.step, r.series.report(min(r.report.Elapsed, r.Duration))
}

// due returns the number and the time of message n of a connection: the connections take turns.
func (c *conn) due(n int) (number int64, at time.Time) {
	number = int64(n)*int64(c.conns) + int64(c.turn)
	return number, c.dueOf(number)
}

// dueOf returns when a message is due.
func (r *run) dueOf(number int64) time.Time {
	return r.start.Add(time.Duration(float64(number) / r.Rate * float64(time.Second)))
}

// counts reports whether a message that was due at a time is one of the report.
func (r *run) counts(due time.Time) bool { return !due.Before(r.measured) && due.Before(r.end) }

// count calls f, with the lock held, for a message that was due at a time, unless it belongs to the
// warm-up.
func (r *run) count(due time.Time, f func(*Report, *step)) {
	if !r.counts(due) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.report, r.series.at(due.Sub(r.measured)))
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
