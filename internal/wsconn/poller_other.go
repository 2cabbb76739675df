//go:build !linux

package wsconn

import (
	"syscall"

	"github.com/penstock-go/penstock/errors"
)

// A Poller does nothing on this system: connections wait in Read, each on a goroutine.
type Poller struct{}

func (*Poller) add(*Conn, syscall.RawConn) (int32, error) { return 0, errors.ErrUnsupported }

func (*Poller) remove(int32) { panic("unreachable") }
