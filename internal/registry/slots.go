package registry

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/rules"
)

// An Address is what the node counts for the clients of one IPv4 address or IPv6 /64 network.
type Address struct {
	network netip.Prefix
	conns   int // slots in use; guarded by Conns.mu

	handshakes Bucket
	Messages   Bucket
	Auths      Attempts
	Forwarded  atomic.Int32 // connections so far with forwarding headers that are not trusted
}

// isIdleLocked reports whether nothing is known of the address that an unknown one has not. It needs
// Conns.mu.
func (a *Address) isIdleLocked(now time.Duration) bool {
	return a.conns == 0 && a.handshakes.isFull(now) && a.Messages.isFull(now) && a.Auths.isIdle(now)
}

// A Refusal says why a connection has no slot.
type Refusal struct {
	Draining bool // otherwise, a limit is exceeded
	Observed int  // connections, including the refused one
	Limit    int
	Option   string // that sets the limit
}

// check returns a refusal if n connections exceed the limit of an option.
func check(n, limit int, option string) *Refusal {
	if limit == 0 || n <= limit {
		return nil
	}
	return &Refusal{Observed: n, Limit: limit, Option: option}
}

// ChargeHandshake charges a request to its address, which is nil if ip is unknown. It returns how long the
// address must wait if it may not make the request.
func (g *Conns[C]) ChargeHandshake(ip netip.Addr, now time.Duration) (a *Address, wait time.Duration) {
	if !ip.IsValid() {
		return nil, 0
	}
	a = g.addressOf(rules.PrefixOf(ip), now)
	return a, a.handshakes.Take(g.config.Handshakes, now, 1)
}

// addressOf returns what the node counts for a network. A new one replaces idle ones, so these do not
// accumulate.
func (g *Conns[C]) addressOf(network netip.Prefix, now time.Duration) *Address {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := g.perIP[network]; a != nil {
		return a
	}
	looked := 0
	for other, a := range g.perIP {
		if a.isIdleLocked(now) {
			delete(g.perIP, other)
		}
		if looked++; looked == 4 {
			break
		}
	}
	a := &Address{network: network}
	g.perIP[network] = a
	return a
}

// Acquire acquires a slot of the node and of the address that ChargeHandshake has returned, or returns a
// refusal. The connection belongs to the returned address, which may be a newer one of the same network.
func (g *Conns[C]) Acquire(a *Address) (*Address, *Refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return a, &Refusal{Draining: true}
	}
	if refusal := check(g.total+1, g.config.MaxConns, "router.Limits.Conns"); refusal != nil {
		return a, refusal
	}
	if a != nil {
		if current := g.perIP[a.network]; current != nil {
			a = current
		} else {
			g.perIP[a.network] = a // it was idle meanwhile
		}
		if refusal := check(a.conns+1, g.config.PerIP, "router.Limits.ConnsPerIP"); refusal != nil {
			return a, refusal
		}
		a.conns++
	}
	g.total++
	return a, nil
}

// Release releases the slot of Acquire, of the address that it has returned.
func (g *Conns[C]) Release(a *Address) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a != nil {
		a.conns--
	}
	if g.total--; g.total == 0 && g.draining {
		close(g.drained)
	}
}

// AcquireUser acquires a slot for a connection of a user, or returns a refusal.
func (g *Conns[C]) AcquireUser(user User) *Refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.acquireUserLocked(user)
}

func (g *Conns[C]) acquireUserLocked(user User) *Refusal {
	if user.UserID == "" {
		return nil
	}
	if refusal := check(g.users[user]+1, g.config.PerUser, "router.Limits.ConnsPerUser"); refusal != nil {
		return refusal
	}
	g.users[user]++
	return nil
}

// ReleaseUser releases the slot of AcquireUser, or of ChangeUser.
func (g *Conns[C]) ReleaseUser(user User) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.releaseUserLocked(user)
}

func (g *Conns[C]) releaseUserLocked(user User) {
	if user.UserID == "" {
		return
	}
	if g.users[user]--; g.users[user] == 0 {
		delete(g.users, user)
	}
}
