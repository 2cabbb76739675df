// Package serverclock moves the clock of a server that a test starts, such as redis-server, so that
// an adapter is tested with what the server executes: over years, at midnight, and when the
// clock goes back.
//
//	clock := serverclock.New(t, time.Date(2028, 12, 31, 23, 59, 59, 0, time.UTC))
//	server := exec.Command("redis-server", "--port", "7001")
//	server.Env = append(os.Environ(), clock.Env()...)
//	// start the server, and take the last token of a quota
//	clock.Sleep(time.Second)
//	// take a token of the next year
//
// The server must be a program for Linux that calls the C library; those written in Go do not.
// Only its time of day is moved: timeouts that measure elapsed time pass as usual. Servers that
// watch each other by the time of day, such as the nodes of a Redis Cluster, see a jump as a
// silence of that length.
package serverclock

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

//go:embed preload/clock.c
var source []byte

// A Clock is the time of day of the servers that were started with its environment. It stands still
// until a method moves it. It is safe for concurrent use.
type Clock struct {
	t       testing.TB
	library string
	file    *os.File

	mu     sync.Mutex
	micros int64 // since 1970
}

// New returns a clock at a time, in whole microseconds, which works until the test ends. It skips
// the test if the system is not Linux or has no C compiler (cc); with CI=true, it fails the test
// if Linux has none.
func New(t testing.TB, at time.Time) *Clock {
	t.Helper()
	dir := t.TempDir()
	library, err := build(dir)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		t.Skip(err)
	case errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true":
		t.Skipf("serverclock: %v; install a C compiler to run this test", err)
	case err != nil:
		t.Fatalf("serverclock: %v", err)
	}
	file, err := os.Create(filepath.Join(dir, "clock"))
	if err != nil {
		t.Fatalf("serverclock: %v", err)
	}
	t.Cleanup(func() { _ = file.Close() })
	c := &Clock{t: t, library: library, file: file}
	c.Set(at)
	return c
}

// build writes the library that servers load to dir.
func build(dir string) (library string, err error) {
	if runtime.GOOS != "linux" {
		return "", fmt.Errorf("serverclock: %w on %s; it replaces functions of the C library of Linux", errors.ErrUnsupported, runtime.GOOS)
	}
	if _, err := exec.LookPath(compiler); err != nil {
		return "", err
	}
	code, err := compile()
	if err != nil {
		return "", err
	}
	library = filepath.Join(dir, "clock.so")
	return library, os.WriteFile(library, code, 0o600)
}

const compiler = "cc"

// compile returns the compiled source. Compiling takes longer than many of the tests.
var compile = sync.OnceValues(func() ([]byte, error) { //nolint:gochecknoglobals // the source does not change
	dir, err := os.MkdirTemp("", "serverclock")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	library := filepath.Join(dir, "clock.so")
	cmd := exec.Command(compiler, "-O2", "-shared", "-fPIC", "-o", library, "-x", "c", "-")
	cmd.Stdin = bytes.NewReader(source)
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", compiler, err, output)
	}
	return os.ReadFile(library)
})

// Env returns what to add to the environment of a server.
func (c *Clock) Env() []string {
	return []string{"LD_PRELOAD=" + c.library, "SERVERCLOCK=" + c.file.Name()}
}

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.UnixMicro(c.micros)
}

// Set moves the clock to a time, which may be in its past. The servers have that time when Set
// returns.
func (c *Clock) Set(at time.Time) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(at.UnixMicro())
}

// Sleep moves the clock forward, or back if d is negative. It returns at once.
func (c *Clock) Sleep(d time.Duration) {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(c.micros + d.Microseconds())
}

// setLocked writes the time twice: a server that reads in between sees that the numbers differ, and
// reads again.
func (c *Clock) setLocked(micros int64) {
	c.t.Helper()
	c.micros = micros
	number := binary.NativeEndian.AppendUint64(nil, uint64(micros))
	for offset := range int64(2) {
		if _, err := c.file.WriteAt(number, 8*offset); err != nil {
			c.t.Fatalf("serverclock: %v", err)
		}
	}
}
