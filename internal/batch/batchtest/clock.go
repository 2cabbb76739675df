// Package batchtest has what the tests of limiters on remote stores share.
package batchtest

import (
	"sync/atomic"
	"time"
)

// A Clock replaces the clocks of a store and of this process in limiters under test. It is safe for
// concurrent use.
type Clock struct {
	Server atomic.Int64 // microseconds since 1970
	Local  atomic.Int64 // a time.Duration
}

// NewClock returns a clock that stands still.
func NewClock() *Clock {
	c := &Clock{}
	c.Server.Store(1_730_000_000_000_000)
	return c
}

// Sleep moves both clocks forward.
func (c *Clock) Sleep(d time.Duration) {
	c.Server.Add(d.Microseconds())
	c.Local.Add(int64(d))
}

// Rewind moves the store's clock backwards, and this process's clock forward until its caches are
// outdated.
func (c *Clock) Rewind(d time.Duration) {
	c.Server.Add(-d.Microseconds())
	c.Forget()
}

// Now returns the store's time.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.Server.Load()) }
