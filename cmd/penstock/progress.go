package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A meter passes a trace on and tells how far it is, once a second. Nothing is
// told of what takes less than that.
type meter struct {
	in       io.Reader
	size     int64 // of the trace in bytes; 0 if unknown
	out      io.Writer
	terminal bool // a line is written over the one before

	lines int64 // so far
	bytes int64
	begun time.Time
	told  time.Time
	width int // of the line that stands on the terminal
}

const tellEvery = time.Second

func newMeter(in io.Reader, size int64, out io.Writer, terminal bool) *meter {
	now := time.Now()
	return &meter{in: in, size: size, out: out, terminal: terminal, begun: now, told: now}
}

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.in.Read(p)
	m.bytes += int64(n)
	if m.out == nil {
		return n, err
	}
	if now := time.Now(); now.Sub(m.told) >= tellEvery {
		m.told = now
		m.tell(now.Sub(m.begun))
	}
	return n, err
}

func (m *meter) tell(took time.Duration) {
	text := fmt.Sprintf("%s lines, %s", grouped(m.lines), megabytes(m.bytes))
	if m.size > 0 {
		text += fmt.Sprintf(" of %s (%d %%)", megabytes(m.size), m.bytes*100/m.size)
	}
	text += fmt.Sprintf(", %s lines a second", grouped(int64(float64(m.lines)/took.Seconds())))
	if !m.terminal {
		fmt.Fprintln(m.out, text)
		return
	}
	fmt.Fprintf(m.out, "\r%-*s", m.width, text)
	m.width = len(text)
}

// clear wipes the line off the terminal, so that something else can be written.
func (m *meter) clear() {
	if m.width > 0 {
		fmt.Fprintf(m.out, "%s", "\r"+strings.Repeat(" ", m.width)+"\r")
		m.width = 0
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
