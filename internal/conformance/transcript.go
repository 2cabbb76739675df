package conformance

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxTranscript is how many lines of a scenario are kept, the latest ones.
const maxTranscript = 500

// A clock converts between the time of the client and that of the runner, which is slower by a factor if the driver says so.
type clock struct {
	start time.Time
	scale int
}

// real returns how long a time of the client is for the runner.
func (c clock) real(d time.Duration) time.Duration { return d / time.Duration(c.scale) }

// between returns the time of the client between two instants of the runner.
func (c clock) between(a, b time.Time) time.Duration { return b.Sub(a) * time.Duration(c.scale) }

// timestamp returns the server's time in milliseconds, which runs like that of the client.
func (c clock) timestamp() int64 {
	return 1730000000000 + c.between(c.start, time.Now()).Milliseconds()
}

// A transcript has what the runner, the server and the client have sent each other.
type transcript struct {
	clock clock

	mu    sync.Mutex
	lines []string
}

// note adds a line with the time of the client. who has 2 or 3 letters.
func (t *transcript) note(who, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	if len(text) > 500 {
		text = text[:500] + "…"
	}
	t.lines = append(t.lines, fmt.Sprintf("%8.3fs %s %s", t.clock.between(t.clock.start, time.Now()).Seconds(), who, text))
	if len(t.lines) > 2*maxTranscript {
		t.lines = slices.Clone(t.lines[maxTranscript:])
	}
}

// all returns the latest lines.
func (t *transcript) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.lines[max(0, len(t.lines)-maxTranscript):])
}
