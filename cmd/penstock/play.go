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

// A player plays the trace.
type player struct {
	config *config
	stdin  io.Reader
	stderr io.Writer
	quiet  bool // says nothing of bad lines
}

// An about tells what the trace was.
type about struct {
	Name     string
	Per      replay.Per
	Lines    int64
	BadLines int64
	Ignored  string // columns that mean nothing
	replay.Stats
}

type played struct {
	about  about
	again  bool // the trace can be read again
	replay *replay.Replay
}

// toldBadLines is how many bad lines are told one by one.
const toldBadLines = 10

// play plays all calls of the trace. It is an error if there are none.
func (p *player) play(opts replay.Options) (*played, error) {
	in, name, size, again, err := p.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	meter := p.meter(in, size)
	defer meter.clear()
	calls, err := trace.NewReader(meter, p.config.format)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := &played{again: again, replay: replay.New(opts)}
	out.about = about{Name: name, Per: p.config.per, Ignored: strings.Join(calls.Ignored(), ", ")}
	if err := p.playAll(calls, out, meter); err != nil {
		return nil, err
	}
	out.about.Lines, out.about.Stats = calls.Line(), out.replay.Stats()
	if more := out.about.BadLines - toldBadLines; more > 0 && !p.quiet {
		meter.clear()
		fmt.Fprintf(p.stderr, "%s: %s more bad lines\n", name, grouped(more))
	}
	if out.about.Calls == 0 {
		return nil, fmt.Errorf("%s: none of its %s lines is a call", name, grouped(out.about.Lines))
	}
	return out, nil
}

// playAll plays to the end of the trace, and tells of bad lines.
func (p *player) playAll(calls *trace.Reader, out *played, m *meter) error {
	for {
		err := playNext(calls, out.replay)
		m.lines = calls.Line()
		if errors.Is(err, io.EOF) {
			return nil
		}
		bad, ok := errors.AsType[*trace.BadLine](err)
		switch {
		case ok:
			out.about.BadLines++
			p.tell(m, out.about, bad)
		case err != nil:
			return fmt.Errorf("%s: after line %d: %w", out.about.Name, calls.Line(), err)
		}
	}
}

func playNext(calls *trace.Reader, r *replay.Replay) error {
	call, err := calls.Next()
	if err != nil {
		return err
	}
	if err := r.Play(call); err != nil {
		return &trace.BadLine{Line: call.Line, Err: err}
	}
	return nil
}

func (p *player) tell(m *meter, a about, bad *trace.BadLine) {
	if a.BadLines <= toldBadLines && !p.quiet {
		m.clear()
		fmt.Fprintf(p.stderr, "%s:%d: %v\n", a.Name, bad.Line, bad.Err)
	}
}

// open returns the trace, its name, its size, which is 0 if nobody knows, and whether it can be
// read again.
func (p *player) open() (in io.ReadCloser, name string, size int64, again bool, err error) {
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
	if !info.Mode().IsRegular() { // a pipe of the shell's, say
		return file, p.config.trace, 0, false, nil
	}
	return file, p.config.trace, info.Size(), true, nil
}

// meter returns a meter of what is read, which tells nobody unless a terminal looks on or
// a flag says so.
func (p *player) meter(in io.Reader, size int64) *meter {
	if file, ok := p.stderr.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return newMeter(in, size, p.stderr, true)
	}
	if p.config.progress {
		return newMeter(in, size, p.stderr, false)
	}
	return newMeter(in, size, nil, false)
}
