package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// A meter reads the trace and prints the progress once per second. It prints nothing in the first
// second.
type meter struct {
	in   io.Reader // the file that is being read
	size int64     // of the trace in bytes; 0 if unknown
	out  io.Writer
	line *statusLine // that each line overwrites; nil if out is not a terminal

	lines   int64 // so far
	bytes   int64
	started time.Time
	printed time.Time
}

const printInterval = time.Second

func newMeter(size int64, out io.Writer, line *statusLine) *meter {
	now := time.Now()
	return &meter{size: size, out: out, line: line, started: now, printed: now}
}

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.in.Read(p)
	m.bytes += int64(n)
	if m.out == nil {
		return n, err
	}
	if now := time.Now(); now.Sub(m.printed) >= printInterval {
		m.printed = now
		m.print(now.Sub(m.started))
	}
	return n, err
}

func (m *meter) print(elapsed time.Duration) {
	text := fmt.Sprintf("%s lines, %s", grouped(m.lines), megabytes(m.bytes))
	if m.size > 0 {
		text += fmt.Sprintf(" of %s (%d %%)", megabytes(m.size), m.bytes*100/m.size)
	}
	text += fmt.Sprintf(", %s lines/s", grouped(int64(float64(m.lines)/elapsed.Seconds())))
	if m.line == nil {
		fmt.Fprintln(m.out, text)
		return
	}
	m.line.print(text)
}

// clear erases the line on the terminal before other output.
func (m *meter) clear() { m.line.clear() }

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// A statusLine is a line on a terminal that is printed over and over. The nil statusLine prints nothing.
type statusLine struct {
	out   io.Writer
	width int // of what is printed
}

// terminalLine returns nil if out is not a terminal.
func terminalLine(out io.Writer) *statusLine {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return &statusLine{out: out}
	}
	return nil
}

func (l *statusLine) print(text string) {
	fmt.Fprintf(l.out, "\r%-*s", l.width, text)
	l.width = len(text)
}

// clear erases the line before other output.
func (l *statusLine) clear() {
	if l != nil && l.width > 0 {
		fmt.Fprintf(l.out, "%s", "\r"+strings.Repeat(" ", l.width)+"\r")
		l.width = 0
	}
}
