package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A meter reads the trace and prints the progress once per second. It prints nothing in the first
// second.
type meter struct {
	in       io.Reader // the file that is being read
	size     int64     // of the trace in bytes; 0 if unknown
	out      io.Writer
	terminal bool // each line overwrites the previous one

	lines   int64 // so far
	bytes   int64
	started time.Time
	printed time.Time
	width   int // of the line on the terminal
}

const printInterval = time.Second

func newMeter(size int64, out io.Writer, terminal bool) *meter {
	now := time.Now()
	return &meter{size: size, out: out, terminal: terminal, started: now, printed: now}
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
	if !m.terminal {
		fmt.Fprintln(m.out, text)
		return
	}
	fmt.Fprintf(m.out, "\r%-*s", m.width, text)
	m.width = len(text)
}

// clear erases the line on the terminal before other output.
func (m *meter) clear() {
	if m.width > 0 {
		fmt.Fprintf(m.out, "%s", "\r"+strings.Repeat(" ", m.width)+"\r")
		m.width = 0
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
