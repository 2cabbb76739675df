package router

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/ipprefix"
)

// A registry holds the open connections and counts those that are open or being opened. A
// request acquires slots before the upgrade, so that concurrent requests cannot exceed a
// limit.
type registry struct {
	limits Limits

	mu     sync.RWMutex
	conns  map[string]*Conn
	byUser map[userKey][]*Conn
	total  int                  // slots in use: open connections and pending requests
	added  uint64               // connections since the start
	perIP  map[netip.Prefix]int // slots in use by network
	users  map[userKey]int      // slots in use by user

	draining bool          // no slot can be acquired
	drained  chan struct{} // closed once draining is set and total is 0
}

// A userKey identifies a user. In the maps of a registry, its userID is not empty.
type userKey struct{ tenantID, userID string }

func (g *registry) init(limits Limits) {
	g.limits = limits
	g.conns = map[string]*Conn{}
	g.byUser = map[userKey][]*Conn{}
	g.perIP = map[netip.Prefix]int{}
	g.users = map[userKey]int{}
	g.drained = make(chan struct{})
}

// startDraining rejects all further requests and returns the open connections.
func (g *registry) startDraining() []*Conn {
	g.mu.Lock()
	first := !g.draining
	g.draining = true
	if first && g.total == 0 {
		close(g.drained)
	}
	g.mu.Unlock()
	return g.list()
}

// acquireAddress acquires a slot for a request from ip, or returns a rejection.
func (g *registry) acquireAddress(ip netip.Addr) *handshakeRejection {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return rejectedBy(reasonDraining, errDraining)
	}
	if rejection := checkConnLimit(g.total+1, g.limits.Conns); rejection != nil {
		return rejection
	}
	if ip.IsValid() {
		network := ipprefix.Of(ip)
		if rejection := checkConnLimit(g.perIP[network]+1, g.limits.ConnsPerIP); rejection != nil {
			return rejection
		}
		g.perIP[network]++
	}
	g.total++
	return nil
}

// releaseAddress releases the slot of acquireAddress.
func (g *registry) releaseAddress(ip netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ip.IsValid() {
		decrement(g.perIP, ipprefix.Of(ip))
	}
	if g.total--; g.total == 0 && g.draining {
		close(g.drained)
	}
}

// acquireUser acquires a slot for a connection of an identity, or returns a rejection.
// Anonymous connections need none.
func (g *registry) acquireUser(id Identity) *handshakeRejection {
	if id.UserID == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	user := id.user()
	if rejection := checkConnLimit(g.users[user]+1, g.limits.ConnsPerUser); rejection != nil {
		return rejection
	}
	g.users[user]++
	return nil
}

// releaseUser releases the slot of acquireUser.
func (g *registry) releaseUser(id Identity) {
	if id.UserID == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	decrement(g.users, id.user())
}

// checkConnLimit returns a rejection if n connections exceed the limit. A limit of 0 means
// unlimited.
func checkConnLimit(n, limit int) *handshakeRejection {
	if limit == 0 || n <= limit {
		return nil
	}
	return rejectedByLimit(LimitExceeded{Kind: LimitConnections, Observed: int64(n), Limit: int64(limit), RetryAfter: connectionRetry})
}

// connectionRetry is an estimate: when a connection will be closed is unknown.
const connectionRetry = 5 * time.Second

// decrement lowers a count and deletes it at 0.
func decrement[K comparable](counts map[K]int, key K) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// add registers an open connection, which it numbers, and reports whether the router is draining.
func (g *registry) add(c *Conn) (draining bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.added++
	c.number = g.added
	g.conns[c.id] = c
	if user := c.Identity().user(); user.userID != "" {
		g.byUser[user] = append(g.byUser[user], c)
	}
	return g.draining
}

// remove unregisters a connection. Its slots stay in use until they are released.
func (g *registry) remove(c *Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c.id)
	g.removeOfUser(c.Identity().user(), c)
}

// removeOfUser removes a connection from those of a user. It must be called with g.mu held.
func (g *registry) removeOfUser(user userKey, c *Conn) {
	if rest := slices.DeleteFunc(g.byUser[user], func(other *Conn) bool { return other == c }); len(rest) > 0 {
		g.byUser[user] = rest
	} else {
		delete(g.byUser, user)
	}
}

func (g *registry) byID(id string) *Conn {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.conns[id]
}

// all iterates over a snapshot, so that the loop body may block and call the registry.
func (g *registry) all() iter.Seq[*Conn] {
	return func(yield func(*Conn) bool) {
		for _, c := range g.list() {
			if !yield(c) {
				return
			}
		}
	}
}

// list returns the open connections.
func (g *registry) list() []*Conn {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Collect(maps.Values(g.conns))
}

// ofUser returns the open connections of a user.
func (g *registry) ofUser(user userKey) []*Conn {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Clone(g.byUser[user])
}
