//go:build (linux && !386 && !s390x) || simulatedpoll

package netpoll

// NewPollerOf returns a poller with at most n loops.
func NewPollerOf(n int) *Poller { return &Poller{groups: make([]group, n)} }
