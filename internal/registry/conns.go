// Package registry knows the connections of a node, by ID and by user, and counts what they use: the slots
// of the node, of addresses and of users, and the rates of addresses. It also has the token buckets
// with which the router bounds the messages of one connection.
//
// Conns.mu is its only lock, under which it calls Config.UserOf and the store function of ChangeUser, and
// nothing else. It has no goroutines, and no clock: times are those since any moment that all calls
// share.
package registry

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Conns holds the open connections, and counts those that are open or being opened. A request acquires
// slots before the upgrade, so that concurrent requests cannot exceed a limit.
type Conns[C comparable] struct {
	config     Config[C]
	lastNumber atomic.Uint64 // of a connection

	mu      sync.RWMutex
	byID    map[string]C
	byUser  map[User][]C
	leaving map[User][]C // those that have been removed and not forgotten
	total   int          // slots in use: open connections and pending requests
	perIP   map[netip.Prefix]*Address
	users   map[User]int // slots in use by user

	draining bool          // no slot can be acquired
	drained  chan struct{} // closed once draining is set and total is 0
}

// A Config says what bounds the connections of a node. A limit of 0 means unlimited.
type Config[C comparable] struct {
	MaxConns   int  // of all clients
	PerIP      int  // connections of one address
	PerUser    int  // connections of one user
	Handshakes Rate // of one address

	// UserOf returns the user of an open connection, which only the store function of ChangeUser
	// changes.
	UserOf func(C) User
}

// A User identifies a user. One without a UserID is anonymous: it has no slots, and OfUser returns none
// of its connections.
type User struct{ TenantID, UserID string }

// Init must be called before other methods.
func (g *Conns[C]) Init(config Config[C]) {
	g.config = config
	g.byID = map[string]C{}
	g.byUser = map[User][]C{}
	g.leaving = map[User][]C{}
	g.perIP = map[netip.Prefix]*Address{}
	g.users = map[User]int{}
	g.drained = make(chan struct{})
}

// NextNumber returns a number for a connection, which is higher than those before: the time of the connection, in
// nanoseconds, if no other one has it.
func (g *Conns[C]) NextNumber(now time.Duration) uint64 {
	for {
		last := g.lastNumber.Load()
		next := max(last+1, uint64(now)) //nolint:gosec // not negative
		if g.lastNumber.CompareAndSwap(last, next) {
			return next
		}
	}
}

// Add registers an open connection, whose ID is unique, and reports whether the node is draining.
func (g *Conns[C]) Add(id string, c C) (draining bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.byID[id] = c
	if user := g.config.UserOf(c); user.UserID != "" {
		g.byUser[user] = append(g.byUser[user], c)
	}
	return g.draining
}

// Remove unregisters a connection, whose user does not change any more. Its slots stay in use until they
// are released, and Leaving returns it until it is forgotten.
func (g *Conns[C]) Remove(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.byID[id]
	if !ok {
		return
	}
	delete(g.byID, id)
	user := g.config.UserOf(c)
	removeOfUser(g.byUser, user, c)
	if user.UserID != "" {
		g.leaving[user] = append(g.leaving[user], c)
	}
}

// Forget ends what Remove has begun.
func (g *Conns[C]) Forget(c C) {
	g.mu.Lock()
	defer g.mu.Unlock()
	removeOfUser(g.leaving, g.config.UserOf(c), c)
}

// ChangeUser moves the slot and the entry of a connection to another user, or the same one, and calls
// store, which makes UserOf return that user. It does nothing if it returns a refusal, or reports that the
// connection is not registered.
func (g *Conns[C]) ChangeUser(id string, to User, store func()) (registered bool, refusal *Refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.byID[id]
	if !ok {
		return false, nil
	}
	from := g.config.UserOf(c)
	if from != to {
		if refusal := g.acquireUserLocked(to); refusal != nil {
			return true, refusal
		}
		if to.UserID != "" {
			g.byUser[to] = append(g.byUser[to], c)
		}
		g.releaseUserLocked(from)
		removeOfUser(g.byUser, from, c)
	}
	store()
	return true, nil
}

// removeOfUser removes a connection from those of a user.
func removeOfUser[C comparable](of map[User][]C, user User, c C) {
	if rest := slices.DeleteFunc(of[user], func(other C) bool { return other == c }); len(rest) > 0 {
		of[user] = rest
	} else {
		delete(of, user)
	}
}

// ByID returns the open connection with an ID, or the zero C.
func (g *Conns[C]) ByID(id string) C {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.byID[id]
}

// OfUser returns the open connections of a user.
func (g *Conns[C]) OfUser(user User) []C {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Clone(g.byUser[user])
}

// Leaving returns the connections of a user that have been removed and not forgotten.
func (g *Conns[C]) Leaving(user User) []C {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Clone(g.leaving[user])
}

// All iterates over a snapshot, which it takes when the iteration begins, so that the loop body may block
// and call Conns.
func (g *Conns[C]) All() iter.Seq[C] {
	return func(yield func(C) bool) {
		for _, c := range g.List() {
			if !yield(c) {
				return
			}
		}
	}
}

// List returns the open connections.
func (g *Conns[C]) List() []C {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.AppendSeq(make([]C, 0, len(g.byID)), maps.Values(g.byID))
}

// Drain refuses all further requests. It returns the open connections, and a channel that is closed once
// no slot is in use.
func (g *Conns[C]) Drain() (open []C, drained <-chan struct{}) {
	g.mu.Lock()
	first := !g.draining
	g.draining = true
	if first && g.total == 0 {
		close(g.drained)
	}
	g.mu.Unlock()
	return g.List(), g.drained
}
