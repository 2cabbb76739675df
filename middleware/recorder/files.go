package recorder

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// filesPerTrace is into how many files a trace of the largest size is divided. Removing the
// oldest file loses that part of the trace.
const filesPerTrace = 16

// files are the files of a trace. They are not safe for concurrent use.
type files struct {
	directory string
	maxBytes  int64 // of all files together

	closed  []closedFile // oldest first
	current *os.File     // nil if there is none
	size    int64        // of current
	bytes   int64        // of all
}

type closedFile struct {
	path string
	size int64
}

func openDirectory(directory string, maxBytes int64) (*files, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, err
	}
	f := &files{directory: directory, maxBytes: maxBytes}
	entries, err := os.ReadDir(directory) // sorted by name, and therefore by time
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !strings.HasPrefix(e.Name(), "trace-") || !strings.HasSuffix(e.Name(), ".csv") {
			continue // not a file of a trace, or removed meanwhile
		}
		f.closed = append(f.closed, closedFile{filepath.Join(directory, e.Name()), info.Size()})
		f.bytes += info.Size()
	}
	return f, nil
}

// append writes whole lines. It removes the oldest files before the trace becomes too large.
func (f *files) append(lines []byte) error {
	if f.current != nil && f.size+int64(len(lines)) > f.maxBytes/filesPerTrace {
		if err := f.close(); err != nil {
			return err
		}
	}
	if err := f.makeRoom(int64(len(header) + len(lines))); err != nil {
		return err
	}
	if f.current == nil {
		if err := f.create(); err != nil {
			return err
		}
	}
	return f.write(lines)
}

func (f *files) create() error {
	name := "trace-" + time.Now().UTC().Format("20060102T150405.000000000Z") + ".csv"
	file, err := os.OpenFile(filepath.Join(f.directory, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	f.current, f.size = file, 0
	return f.write([]byte(header))
}

// write truncates the file after a failure, because a part of a line would make the next one
// invalid. If that fails too, the file is closed.
func (f *files) write(b []byte) error {
	_, err := f.current.Write(b)
	if err == nil {
		f.size += int64(len(b))
		f.bytes += int64(len(b))
		return nil
	}
	_, seekErr := f.current.Seek(f.size, 0)
	if seekErr = errors.Join(seekErr, f.current.Truncate(f.size)); seekErr != nil || f.size == 0 {
		return errors.Join(err, seekErr, f.close())
	}
	return err
}

// makeRoom removes the oldest files until n more bytes fit.
func (f *files) makeRoom(n int64) error {
	for f.bytes+n > f.maxBytes && len(f.closed) > 0 {
		oldest := f.closed[0]
		if err := os.Remove(oldest.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		f.bytes -= oldest.size
		f.closed = slices.Delete(f.closed, 0, 1)
	}
	return nil
}

func (f *files) close() error {
	if f.current == nil {
		return nil
	}
	f.closed = append(f.closed, closedFile{f.current.Name(), f.size})
	err := f.current.Close()
	f.current = nil
	return err
}
