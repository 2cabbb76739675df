//go:build !js

package chat

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyHangup relays SIGHUP, at which the file of limits is read.
func notifyHangup(hangups chan<- os.Signal) { signal.Notify(hangups, syscall.SIGHUP) }
