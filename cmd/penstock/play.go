package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
	"github.com/penstock-go/penstock/cmd/penstock/internal/trace"
	"github.com/penstock-go/penstock/errors"
)

// A runner replays the trace.
type runner struct {
	config *config
	stdin  io.Reader
	stderr io.Writer
	quiet  bool // does not print invalid lines
}

// A traceSummary describes the trace.
type traceSummary struct {
	Name         string
	Per          replay.Per
	Lines        int64
	InvalidLines int64
	Ignored      string // unknown columns
	replay.Stats
}

type result struct {
	summary    traceSummary
	repeatable bool // the trace can be read again
	replay     *replay.Replay
}

// maxReportedLines is how many invalid lines are printed one by one.
const maxReportedLines = 10

// run replays all requests of the trace. It returns an error if there are none.
func (p *runner) run(opts replay.Options) (*result, error) {
	in, name, size, repeatable, err := p.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	meter := p.meter(in, size)
	defer meter.clear()
	requests, err := trace.NewReader(meter, p.config.format)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := &result{repeatable: repeatable, replay: replay.New(opts)}
	out.summary = traceSummary{Name: name, Per: p.config.per, Ignored: strings.Join(requests.Ignored(), ", ")}
	if err := p.replayAll(requests, out, meter); err != nil {
		return nil, err
	}
	out.summary.Lines, out.summary.Stats = requests.Line(), out.replay.Stats()
	if more := out.summary.InvalidLines - maxReportedLines; more > 0 && !p.quiet {
		meter.clear()
		fmt.Fprintf(p.stderr, "%s: %s more invalid lines\n", name, grouped(more))
	}
	if out.summary.Requests == 0 {
		return nil, fmt.Errorf("%s: none of its %s lines is a valid request", name, grouped(out.summary.Lines))
	}
	return out, nil
}

// replayAll replays to the end of the trace and prints invalid lines.
func (p *runner) replayAll(requests *trace.Reader, out *result, m *meter) error {
	for {
		err := replayNext(requests, out.replay)
		m.lines = requests.Line()
		if errors.Is(err, io.EOF) {
			return nil
		}
		invalid, ok := errors.AsType[*trace.InvalidLine](err)
		switch {
		case ok:
			out.summary.InvalidLines++
			p.printInvalid(m, out.summary, invalid)
		case err != nil:
			return fmt.Errorf("%s: after line %d: %w", out.summary.Name, requests.Line(), err)
		}
	}
}

func replayNext(requests *trace.Reader, r *replay.Replay) error {
	record, err := requests.Next()
	if err != nil {
		return err
	}
	if err := r.Add(record); err != nil {
		return &trace.InvalidLine{Line: record.Line, Err: err}
	}
	return nil
}

func (p *runner) printInvalid(m *meter, a traceSummary, invalid *trace.InvalidLine) {
	if a.InvalidLines <= maxReportedLines && !p.quiet {
		m.clear()
		fmt.Fprintf(p.stderr, "%s:%d: %v\n", a.Name, invalid.Line, invalid.Err)
	}
}

// open returns the trace, its name, its size (0 if unknown), and whether it can be read again.
func (p *runner) open() (in io.ReadCloser, name string, size int64, repeatable bool, err error) {
	if p.config.trace == "" {
		return io.NopCloser(p.stdin), "standard input", 0, false, nil
	}
	file, err := os.Open(p.config.trace)
	if err != nil {
		return nil, "", 0, false, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, "", 0, false, errors.Join(err, file.Close())
	}
	if !info.Mode().IsRegular() { // such as a named pipe
		return file, p.config.trace, 0, false, nil
	}
	return file, p.config.trace, info.Size(), true, nil
}

// meter returns a progress meter. It prints only to a terminal, or if -progress is set.
func (p *runner) meter(in io.Reader, size int64) *meter {
	if file, ok := p.stderr.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return newMeter(in, size, p.stderr, true)
	}
	if p.config.progress {
		return newMeter(in, size, p.stderr, false)
	}
	return newMeter(in, size, nil, false)
}
