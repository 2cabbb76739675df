package main

import (
	"fmt"
	"io"
	"strings"

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
	sources, err := p.sources()
	if err != nil {
		return nil, err
	}
	out := &result{repeatable: true, replay: replay.New(opts)}
	out.summary = traceSummary{Name: nameOf(sources), Per: p.config.per}
	meter := p.meter(sources)
	defer meter.clear()
	for _, s := range sources {
		out.repeatable = out.repeatable && s.repeatable
		if err := p.replaySource(s, out, meter); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	out.summary.Stats = out.replay.Stats()
	if more := out.summary.InvalidLines - maxReportedLines; more > 0 && !p.quiet {
		meter.clear()
		fmt.Fprintf(p.stderr, "%s: %s more invalid lines\n", out.summary.Name, grouped(more))
	}
	if out.summary.Requests == 0 {
		return nil, fmt.Errorf("%s: none of its %s lines is a valid request", out.summary.Name, grouped(out.summary.Lines))
	}
	return out, nil
}

// replaySource replays one file. Of several files, some may be empty.
func (p *runner) replaySource(s source, out *result, m *meter) error {
	in, err := p.open(s)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	m.in = in
	requests, err := trace.NewReader(m, p.config.format)
	if errors.Is(err, trace.ErrEmpty) && out.summary.Name != s.name {
		return nil
	}
	if err != nil {
		return err
	}
	if ignored := strings.Join(requests.Ignored(), ", "); ignored != "" {
		out.summary.Ignored = ignored
	}
	before := out.summary.Lines
	err = p.replayAll(requests, s, out, m, before)
	out.summary.Lines = before + requests.Line()
	return err
}

// replayAll replays to the end of a file and prints invalid lines. Lines were read before it.
func (p *runner) replayAll(requests *trace.Reader, s source, out *result, m *meter, lines int64) error {
	for {
		err := replayNext(requests, out.replay)
		m.lines = lines + requests.Line()
		if errors.Is(err, io.EOF) {
			return nil
		}
		invalid, ok := errors.AsType[*trace.InvalidLine](err)
		switch {
		case ok:
			out.summary.InvalidLines++
			p.printInvalid(m, s.name, out.summary.InvalidLines, invalid)
		case err != nil:
			return fmt.Errorf("after line %d: %w", requests.Line(), err)
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

func (p *runner) printInvalid(m *meter, name string, count int64, invalid *trace.InvalidLine) {
	if count <= maxReportedLines && !p.quiet {
		m.clear()
		fmt.Fprintf(p.stderr, "%s:%d: %v\n", name, invalid.Line, invalid.Err)
	}
}

// meter returns a progress meter. It prints only to a terminal, or if -progress is set.
func (p *runner) meter(sources []source) *meter {
	size := int64(0)
	for _, s := range sources {
		size += s.size
	}
	if line := terminalLine(p.stderr); line != nil {
		return newMeter(size, p.stderr, line)
	}
	if p.config.progress {
		return newMeter(size, p.stderr, nil)
	}
	return newMeter(size, nil, nil)
}
