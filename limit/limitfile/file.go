package limitfile

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
)

// Interval is how often [File.Run] reads the file.
const Interval = 5 * time.Second

// Options configure [Load]. The zero value is a working configuration.
type Options struct {
	Logger *slog.Logger // of changes and errors; slog.Default() if nil
}

// A File keeps limiters as a file says. Its methods are safe for concurrent use.
type File struct {
	path     string
	log      *slog.Logger
	limiters []named

	reload  sync.Mutex // held while the file is read and applied, so that no older content follows a newer one
	applied *Policies
	sum     content // of applied
	seen    content // by the last poll

	status atomic.Pointer[Status]
}

// A Status is what a [File] knows about its limits.
type Status struct {
	Err     error     // why the file does not apply at present; nil if the limits in effect are those of the file
	Applied time.Time // when the limits in effect were read
}

// content identifies what a reading of the file has found.
type content struct {
	sum [sha256.Size]byte
	err string // why there is no content
}

// Load reads the limits of a file and sets the policies of the limiters, which must have a name: it
// is the name of the line. A limiter is a [adapter.Describer] of one policy, and a
// [limit.PolicySetter] of a [limit.Policy], a [limit.WindowPolicy] or a [limit.QuotaPolicy]; for others,
// and for two limiters with one name, Load panics. If opts is nil, it uses the zero options.
//
// A limiter that has to be changed together with others, such as one with a fallback, is a type of
// the application that implements these interfaces. The same holds for a quota with Start, which a file
// cannot contain.
//
// After an error, some limiters may have new policies: the program should not start. Load does not
// follow the file; see [File.Run].
func Load(path string, opts *Options, limiters ...limit.Limiter) (*File, error) {
	f := &File{path: path, limiters: namedLimiters(limiters), log: slog.Default()}
	if opts != nil && opts.Logger != nil {
		f.log = opts.Logger
	}
	text, err := read(path)
	if err == nil {
		err = f.apply(text)
	}
	if err != nil {
		return nil, fmt.Errorf("limits file %s: %w", path, err)
	}
	f.log.Info("limits loaded from file", "path", path, "limits", f.applied.Len())
	return f, nil
}

// Run follows the file until ctx is done. Every [Interval] it reads the file, and applies a content
// that it finds twice in a row, so a file that is being written is not applied in part. It compares
// contents, not times, so it follows files that are replaced by a rename or a symbolic link, as
// Kubernetes replaces those of a ConfigMap.
//
// If the file cannot be read or is not valid, the limits in effect stay. Run logs the error once, and
// tries again: [File.Status] has the error until the file is valid.
func (f *File) Run(ctx context.Context) {
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.poll()
		}
	}
}

func (f *File) poll() {
	f.reload.Lock()
	defer f.reload.Unlock()
	text, err := read(f.path)
	found := contentOf(text, err)
	again := found == f.seen
	f.seen = found
	if again || found == f.sum {
		_ = f.updateLocked(text, err) // the status has the error
	}
}

// Reload reads the file and applies it at once. Programs call it when they receive a SIGHUP. The
// error is the one that Run would log, and Status has it, too.
func (f *File) Reload() error {
	f.reload.Lock()
	defer f.reload.Unlock()
	text, err := read(f.path)
	f.seen = contentOf(text, err)
	return f.updateLocked(text, err)
}

// Status returns whether the limits in effect are those of the file.
func (f *File) Status() Status { return *f.status.Load() }

// updateLocked applies what was read, or keeps the limits in effect.
func (f *File) updateLocked(text []byte, err error) error {
	before, wrong := f.applied, f.Status().Err
	switch {
	case err == nil && contentOf(text, nil) == f.sum:
		if wrong != nil {
			f.log.Info("limits file is valid again, and no limit has changed", "path", f.path)
			f.status.Store(&Status{Applied: f.Status().Applied})
		}
		return nil
	case err == nil:
		err = f.apply(text)
	}
	if err != nil {
		err = fmt.Errorf("limits file %s: %w", f.path, err)
		if wrong == nil || wrong.Error() != err.Error() {
			f.log.Error("limits file not applied; the limits in effect stay", "path", f.path, "error", err)
		}
		f.status.Store(&Status{Err: err, Applied: f.Status().Applied})
		return err
	}
	changes := before.Changes(f.applied)
	for _, c := range changes {
		f.log.Info("limit changed", "path", f.path, "limit", c.Name, "old", c.Old, "new", c.New,
			"rate", Describe(c.Rate), "capacity", Describe(c.Capacity))
	}
	if len(changes) == 0 {
		f.log.Info("limits file has changed, and no limit has", "path", f.path)
	}
	return nil
}

// apply sets all policies, or none if there are policies to which it can return.
func (f *File) apply(text []byte) error {
	policies, err := Parse(text)
	if err == nil {
		err = f.check(policies)
	}
	if err != nil {
		return err
	}
	for i, l := range f.limiters {
		if err := l.set(policies.byName[l.name]); err != nil {
			return errors.Join(fmt.Errorf("limit %q: %w", l.name, err), f.restore(f.limiters[:i+1]))
		}
	}
	f.applied, f.sum = policies, contentOf(text, nil)
	f.status.Store(&Status{Applied: time.Now()})
	return nil
}

// restore returns limiters to the policies in effect. The last one is that which has failed, and may
// consist of several limiters.
func (f *File) restore(limiters []named) error {
	if f.applied == nil {
		return nil
	}
	var failed []error
	for _, l := range limiters {
		if err := l.set(f.applied.byName[l.name]); err != nil {
			failed = append(failed, fmt.Errorf("limit %q cannot return to its old policy: %w", l.name, err))
		}
	}
	return errors.Join(failed...)
}

func contentOf(text []byte, err error) content {
	if err != nil {
		return content{err: err.Error()}
	}
	return content{sum: sha256.Sum256(text)}
}

// read returns the content of a regular file, which may be a symbolic link.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path) // before Open, which would wait for the writer of a named pipe
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is not a regular file but %s", info.Mode())
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from
	return io.ReadAll(io.LimitReader(file, MaxBytes+1))
}
