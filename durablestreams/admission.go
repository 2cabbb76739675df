package durablestreams

import (
	"net/netip"
	"sync"
)

// An admission counts the requests that are served at the same time.
type admission struct {
	max, maxPerAddress int

	mu        sync.Mutex
	all       int
	addresses map[netip.Prefix]int // no entry is 0
}

func (a *admission) init() { a.addresses = map[netip.Prefix]int{} }

// enter admits a request of an address, which must leave. It reports false if there are too many. One that is unknown has
// no bound of its own, because all clients may share it.
func (a *admission) enter(address netip.Prefix) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all >= a.max || address.IsValid() && a.addresses[address] >= a.maxPerAddress {
		return false
	}
	a.all++
	a.addresses[address]++
	return true
}

func (a *admission) leave(address netip.Prefix) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all--
	if a.addresses[address]--; a.addresses[address] == 0 {
		delete(a.addresses, address)
	}
}
