package router

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/ipprefix"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topicname"
)

// A registry holds the open connections and counts those that are open or being opened. A
// request acquires slots before the upgrade, so that concurrent requests cannot exceed a
// limit.
type registry struct {
	limits Limits

	mu     sync.RWMutex
	conns  map[string]*Conn
	byUser map[userKey][]*Conn
	total  int // slots in use: open connections and pending requests
	perIP  map[netip.Prefix]*address
	users  map[userKey]int // slots in use by user

	lastNumber uint64 // the Conn.number of the last connection

	draining bool          // no slot can be acquired
	drained  chan struct{} // closed once draining is set and total is 0
}

// A userKey identifies a user. In the maps of a registry, its userID is not empty.
type userKey struct{ tenantID, userID string }

// log returns the name of the user's log.
func (u userKey) log() string { return topicname.UserLog(u.tenantID, u.userID) }

// ofTopics returns the user as topics know it.
func (u userKey) ofTopics() topic.User { return topic.User{TenantID: u.tenantID, UserID: u.userID} }

func (g *registry) init(limits Limits) {
	g.limits = limits
	g.conns = map[string]*Conn{}
	g.byUser = map[userKey][]*Conn{}
	g.perIP = map[netip.Prefix]*address{}
	g.users = map[userKey]int{}
	g.drained = make(chan struct{})
}

// startDraining refuses all further requests and returns the open connections.
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

// chargeHandshake charges a request to its address, which it returns, or returns a refusal. The
// address is nil if ip is unknown.
func (g *registry) chargeHandshake(ip netip.Addr, now time.Duration) (*address, *handshakeRefusal) {
	if !ip.IsValid() {
		return nil, nil
	}
	a := g.addressOf(ipprefix.Of(ip), now)
	if refusal := a.handshakes.take(g.limits.HandshakesPerIP, now, 1, "HandshakesPerIP"); refusal != nil {
		return a, refusedByLimit(*refusal)
	}
	return a, nil
}

// addressOf returns what the node counts for a network. A new one replaces idle ones, so these do not
// accumulate.
func (g *registry) addressOf(network netip.Prefix, now time.Duration) *address {
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
	a := new(address)
	g.perIP[network] = a
	return a
}

// acquireAddress acquires a slot for the request of a connection, or returns a refusal.
func (g *registry) acquireAddress(c *Conn) *handshakeRefusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return refusedBy(reasonDraining, errDraining)
	}
	if refusal := checkConnLimit(g.total+1, g.limits.Conns); refusal != nil {
		return refusal
	}
	if c.address != nil {
		network := ipprefix.Of(c.ip)
		if current := g.perIP[network]; current != nil {
			c.address = current
		} else {
			g.perIP[network] = c.address // it was idle meanwhile
		}
		if refusal := checkConnLimit(c.address.conns+1, g.limits.ConnsPerIP); refusal != nil {
			return refusal
		}
		c.address.conns++
	}
	g.total++
	return nil
}

// releaseAddress releases the slot of acquireAddress.
func (g *registry) releaseAddress(a *address) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a != nil {
		a.conns--
	}
	if g.total--; g.total == 0 && g.draining {
		close(g.drained)
	}
}

// acquireUser acquires a slot for a connection of an identity, or returns a refusal.
// Anonymous connections need none.
func (g *registry) acquireUser(id Identity) *handshakeRefusal {
	if id.UserID == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	user := id.user()
	if refusal := checkConnLimit(g.users[user]+1, g.limits.ConnsPerUser); refusal != nil {
		return refusal
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

// checkConnLimit returns a refusal if n connections exceed the limit. A limit of 0 means
// unlimited.
func checkConnLimit(n, limit int) *handshakeRefusal {
	if limit == 0 || n <= limit {
		return nil
	}
	return refusedByLimit(LimitExceeded{Kind: LimitConnections, Observed: int64(n), Limit: int64(limit), RetryAfter: connectionRetry})
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
	g.lastNumber = max(g.lastNumber+1, uint64(time.Since(c.router.created)))
	c.sub.Number = g.lastNumber
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
	g.removeOfUserLocked(c.Identity().user(), c)
}

// removeOfUserLocked removes a connection from those of a user.
func (g *registry) removeOfUserLocked(user userKey, c *Conn) {
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
