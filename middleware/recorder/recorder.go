package recorder

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// Options configure a [Recorder]. The zero value is a working configuration.
type Options struct {
	// Key returns the client of a message. It should be the key of the limit to choose, without
	// the type, which a trace contains anyway. If nil, it is the user, or the address of an
	// anonymous connection.
	Key func(router.IngressContext) limit.Key

	// Cost returns the cost of a message in tokens. If nil, every message costs 1. A negative
	// cost is recorded as 0.
	Cost func(router.IngressContext) int64

	// MaxBytes bounds the size of all files together, at least 1 MiB. If 0, it is 256 MiB. A
	// message takes about 40 bytes.
	MaxBytes int64

	// Secret is the key of the hash. Recorders with the same secret write the same hash for
	// the same client, so the traces of several nodes, or of several runs, can be read as
	// one. A reader who knows the secret can test whether a client is in a trace. If nil, it
	// is random.
	Secret []byte

	// OnError is called with errors of the file system, on a goroutine of its own. Messages
	// that could not be written are counted as dropped, and writing is attempted again after a
	// second. It may be nil.
	OnError func(error)
}

// Stats counts messages since the start.
type Stats struct {
	Recorded int64 // written to a file
	Dropped  int64 // not written, because the disk was too slow or failed
}

// A Recorder writes a trace. It is safe for concurrent use.
type Recorder struct {
	opts  Options
	files *files
	wake  chan struct{} // has room for one: the buffer is half full, or the recorder is closed
	done  chan struct{} // closed when run has returned

	mu     sync.Mutex
	buffer []entry
	closed bool
	stats  Stats
}

// An entry is a message that is not written yet.
type entry struct {
	micros int64
	key    limit.Key
	kind   string
	cost   int64
}

const (
	defaultMaxBytes = 256 << 20
	minMaxBytes     = 1 << 20
	maxEntries      = 1 << 16 // in the buffer
	flushInterval   = time.Second
)

// New returns a recorder that writes to the directory, which it creates if it does not exist. Only
// one recorder may write to a directory. New panics if MaxBytes is invalid, and returns the
// errors of the file system.
func New(directory string, opts *Options) (*Recorder, error) {
	r := &Recorder{wake: make(chan struct{}, 1), done: make(chan struct{})}
	if opts != nil {
		r.opts = *opts
	}
	if r.opts.MaxBytes == 0 {
		r.opts.MaxBytes = defaultMaxBytes
	}
	if r.opts.MaxBytes < minMaxBytes {
		panic(fmt.Sprintf("recorder: MaxBytes is %d; it must be at least %d", r.opts.MaxBytes, minMaxBytes))
	}
	if r.opts.Key == nil {
		r.opts.Key = keyPerUserOrIP
	}
	if r.opts.Secret == nil {
		r.opts.Secret = make([]byte, 32)
		_, _ = rand.Read(r.opts.Secret) // never fails
	}
	var err error
	if r.files, err = openDirectory(directory, r.opts.MaxBytes); err != nil {
		return nil, fmt.Errorf("recorder: %w", err)
	}
	go r.run()
	return r, nil
}

func keyPerUserOrIP(in router.IngressContext) limit.Key {
	key := ratelimit.KeyPerUserOrIPPerType(in)
	key[3] = ""
	return key
}

// Record records a message. It is a [router.IngressFunc] that admits every message. After Close
// it does nothing.
func (r *Recorder) Record(_ context.Context, in router.IngressContext) error {
	e := entry{micros: in.ReceivedAt.UnixMicro(), key: r.opts.Key(in), kind: in.Type, cost: 1}
	if r.opts.Cost != nil {
		e.cost = max(r.opts.Cost(in), 0)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return nil
	case len(r.buffer) == maxEntries:
		r.stats.Dropped++
		return nil
	}
	r.buffer = append(r.buffer, e)
	if len(r.buffer) == maxEntries/2 {
		r.notify()
	}
	return nil
}

// notify makes run write what is in the buffer.
func (r *Recorder) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Stats returns how many messages were written and dropped.
func (r *Recorder) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Close writes what is in the buffer, closes the file and returns its last error. Further calls
// do nothing.
func (r *Recorder) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	r.mu.Unlock()
	r.notify()
	<-r.done
	if err := r.files.close(); err != nil {
		return fmt.Errorf("recorder: %w", err)
	}
	return nil
}

// run writes the buffer every second, or when it is half full. It is the only goroutine that
// uses r.files until it closes done.
func (r *Recorder) run() {
	defer close(r.done)
	ticker := time.NewTicker(flushInterval)
	defer ticker.Stop()
	encoder := newEncoder(r.opts.Secret)
	var spare []entry // swapped with the buffer, so that neither is allocated again
	for closed := false; !closed; {
		select {
		case <-ticker.C:
		case <-r.wake:
		}
		r.mu.Lock()
		entries := r.buffer
		r.buffer, closed = spare[:0], r.closed
		r.mu.Unlock()
		r.write(encoder, entries)
		clear(entries) // releases the strings
		spare = entries
	}
}

// write appends entries to the files.
func (r *Recorder) write(encoder *encoder, entries []entry) {
	written, err := 0, error(nil)
	for written < len(entries) && err == nil {
		lines, n := encoder.encode(entries[written:])
		if err = r.files.append(lines); err == nil {
			written += n
		}
	}
	r.mu.Lock()
	r.stats.Recorded += int64(written)
	r.stats.Dropped += int64(len(entries) - written)
	r.mu.Unlock()
	if err != nil && r.opts.OnError != nil {
		r.opts.OnError(fmt.Errorf("recorder: %w", err))
	}
}
