//go:build unix

package load

import (
	"fmt"
	"syscall"
)

// reservedDescriptors are those that the process needs beside its connections.
const reservedDescriptors = 32

// checkDescriptors returns an error if the process may not open as many files as it has connections.
// Go has raised the soft limit to the hard one.
func checkDescriptors(connections int) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return nil //nolint:nilerr // the limit is unknown; a connection that exceeds it is refused
	}
	return checkLimit(connections, uint64(limit.Cur)) //nolint:unconvert // signed on FreeBSD
}

func checkLimit(connections int, limit uint64) error {
	needed := uint64(connections) + reservedDescriptors
	if needed <= limit {
		return nil
	}
	return fmt.Errorf("%d connections need %d file descriptors, and the limit of this process is %d; raise the hard limit, with \"ulimit -n %d\" as root, "+
		"\"nofile\" in /etc/security/limits.conf, or --ulimit nofile=%d of docker run", connections, needed, limit, needed, needed)
}
