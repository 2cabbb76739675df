// Package hints reports what an application most often gets wrong, with the remedy: once per cause, however often it
// happens. All but [ProxyWarning] is for developers. It decides what to say and whether it has been said; the
// caller has found the mistake, and writes the line. Hints.mu is held under no other lock; there
// are no goroutines.
package hints

import (
	"bytes"
	"log/slog"
	"runtime"
	"sync"

	"github.com/penstock-go/penstock/internal/declared"
)

// maxHints bounds the causes that are reported, because clients choose names of topics and origins.
const maxHints = 1000

// Hints are those of one router. Its methods must not be called under a lock, because what writes
// the lines may call the router.
type Hints struct {
	declared *declared.Messages
	write    Write

	mu   sync.Mutex
	seen map[cause]bool
}

// Write writes a line. The texts of attributes may be of any length, and come from clients.
type Write func(level slog.Level, text string, attrs ...slog.Attr)

// A cause is a likely mistake of the application: what was observed, and of what.
type cause struct{ text, subject string }

// New returns Hints that compare what is sent with declarations.
func New(d *declared.Messages, write Write) *Hints {
	return &Hints{declared: d, write: write, seen: map[cause]bool{}}
}

// EndLockedGoroutine ends the goroutine, and with it the OS thread, if the handler of a route has left it locked
// to that thread: later messages would run on a thread whose state the handler may have changed. Only the text of a
// stack says so, which takes too long to look at after every message of a server in production.
func (h *Hints) EndLockedGoroutine(route string) {
	stack := make([]byte, 128)
	head, _, _ := bytes.Cut(stack[:runtime.Stack(stack, false)], []byte("\n"))
	if !bytes.Contains(head, []byte("locked to thread")) {
		return
	}
	h.LockedGoroutine(route)
	runtime.Goexit()
}

// LockedGoroutine reports that the handler of a route has left its goroutine locked to an OS thread.
func (h *Hints) LockedGoroutine(route string) {
	h.hint(slog.LevelWarn, cause{"handler left its goroutine locked to an OS thread", route}, "type",
		"call runtime.UnlockOSThread before the handler returns; if the thread must not be used again, lock it on a goroutine that the handler starts")
}

// hint writes a line with the remedy, unless the cause has had one. The key is the name of its
// subject.
func (h *Hints) hint(level slog.Level, c cause, key, remedy string) {
	if h.add(c) {
		h.write(level, c.text, slog.String(key, c.subject), slog.String("remedy", remedy))
	}
}

// add reports whether a cause is new.
func (h *Hints) add(c cause) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen[c] || len(h.seen) >= maxHints {
		return false
	}
	h.seen[c] = true
	return true
}
