//go:build !linux || 386 || s390x

package netpoll

import "github.com/penstock-go/penstock/errors"

// A Poller does nothing on this system: every connection waits on its own goroutine.
type Poller struct{}

// Add returns an error.
func (*Poller) Add(Waiter, *Socket) (slot int32, err error) { return 0, errors.ErrUnsupported }

// Remove is never called.
func (*Poller) Remove(int32) { panic("unreachable") }
