package present

import (
	"maps"
	"math"
	"net/netip"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/timerqueue"
)

// A User is a user of a tenant.
type User struct{ TenantID, UserID string }

// An Absence is a client that is away, or a member that no node announces. A Table's lock guards the fields that are not exported.
type Absence struct {
	User   User
	Of     string                 // the session, or the node that has announced a held member; empty if it was this node
	Client *Client                // nil for a held member
	Stays  time.Duration          // how long a held member stays if its node has ended
	Act    func(*Absence, Action) // the Table's lock guards it, because Unused changes it

	table  *Table
	topics []stay // in which it stays present
	number uint64 // the order in which absences have entered the table
	place  int32  // in Table.clock
	state  state
}

// A Client is what a Table knows only of clients.
type Client struct {
	Address    netip.Prefix // zero if it is unknown
	Generation uint64       // of the session
	Since      uint32       // when the user of the session was authenticated
}

// A stay is a topic, and until when a client stays present there: while it waits for its session, until that ends.
type stay struct {
	topic string
	until time.Duration // since Table.began
}

type state uint8

const ( // see the documentation of the package
	out state = iota
	waiting
	evicted
	recorded
	grace
	held
)

// An Action is what the owner of an Absence must do. The zero Action is nothing.
type Action struct {
	Kind       ActionKind
	Topics     []string // of Leave, which has some
	PerAddress bool     // of Evict: too many are of one address, and otherwise of one user
}

// An ActionKind says what must be done.
type ActionKind uint8

// The kinds.
const (
	Leave  ActionKind = iota // leave the topics, which no other action has
	Expire                   // the time of a session is up: end it, or Wait again
	End                      // the user has lost the access: end the session
	Evict                    // too many clients are away: end the session, and delete its record
)

const (
	nodeMemory     = time.Minute // how long a node is remembered that has ended: the changes that this causes may be reported late
	maxDisconnects = 1024        // that are remembered
)

// A Table is everyone who is away.
type Table struct {
	perUser, perAddress int
	began               time.Time
	clock               timerqueue.Queue[*Absence]

	mu       sync.Mutex
	entered  uint64                        // how many absences have entered
	absences map[any]map[*Absence]struct{} // by each of Absence.keys
	ended    map[string]time.Duration      // the nodes that have ended, and when

	disconnects map[User]disconnect // the latest of each user
	forgotten   uint32              // the number of the newest one that is not among them any more
}

type disconnect struct {
	number uint32
	code   int
	reason string
}

// New returns an empty table, which bounds how many clients of a user, and of an address, are away.
func New(perUser, perAddress int) *Table {
	return &Table{
		perUser: perUser, perAddress: perAddress, began: time.Now(),
		absences: map[any]map[*Absence]struct{}{}, ended: map[string]time.Duration{}, disconnects: map[User]disconnect{},
	}
}

// Wait adds a client that may come back for its session, or continues to wait after an Expire. Expire follows after d.
func (t *Table) Wait(a *Absence, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.state == out {
		t.enterLocked(a, waiting)
	}
	t.clock.Set(a, d)
}

// Stay lets a client stay present in a topic. It adds one without a session, which leaves the topic after d. Stay reports
// false if the client leaves now: a is nil, its session is not waited for any more, or d is 0 and it has no session.
func (t *Table) Stay(a *Absence, topic string, d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case a == nil, !a.waits() && (a.Of != "" || d == 0):
		return false
	case a.state == out:
		t.enterLocked(a, grace)
	}
	a.topics = append(a.topics, stay{topic, t.now() + d})
	if a.state == grace {
		t.setFirstLocked(a)
	}
	return true
}

// Hold adds a member that no node announces any more. It leaves the topic after d, or after a.Stays if its node has
// ended.
func (t *Table) Hold(a *Absence, topic string, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.ended[a.Of]; ok && t.now()-at < nodeMemory {
		d = a.Stays
	}
	a.topics = []stay{{topic, t.now() + d}}
	t.moveLocked(a, held)
	t.setFirstLocked(a)
}

// Waits reports whether a session is waited for. a may be nil.
func (t *Table) Waits(a *Absence) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return a != nil && a.waits()
}

// Forget removes an absence, and returns the topics in which it was present. a may be nil.
func (t *Table) Forget(a *Absence) (topics []string) {
	if a == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	topics = t.leaveLocked(a, everywhere).Topics
	t.moveLocked(a, out)
	return topics
}

// Unused ends the waiting for a session without topics, whose record still counts: evict becomes its Act, for Evict only.
// It reports false if there are topics.
func (t *Table) Unused(a *Absence, evict func(*Absence, Action)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(a.topics) > 0 {
		return false
	}
	next := out
	if a.state == waiting && (a.User.UserID != "" && t.perUser < math.MaxInt || a.Client.Address.IsValid() && t.perAddress < math.MaxInt) {
		next, a.Act = recorded, evict
	}
	t.moveLocked(a, next)
	return true
}

// Moved forgets the records of a session that a later connection has, which is in the topics.
func (t *Table) Moved(session string, generation uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for a := range t.absences[session] {
		if a.state == recorded && a.Client.Generation < generation {
			t.moveLocked(a, out)
		}
	}
}

// TakenOver makes a client without a session leave a topic soon, because another connection is present in its place.
func (t *Table) TakenOver(a *Absence, topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, s := range a.topics {
		if s.topic == topic && a.state == grace {
			a.topics[i].until = 0
			t.setFirstLocked(a)
		}
	}
}

// EndAccess ends the absence of a user's clients; of those with a session, if the user was authenticated before.
func (t *Table) EndAccess(user User, before func(since uint32) bool) {
	t.handleUser(user, func(a *Absence) Action {
		switch {
		case !a.waits():
			return t.leaveLocked(a, everywhere)
		case before(a.Client.Since):
			return Action{Kind: End}
		}
		return Action{}
	})
}

// Revoke ends the presence of a user's absent clients in topics.
func (t *Table) Revoke(user User, matches func(topic string) bool) {
	t.handleUser(user, func(a *Absence) Action { return t.leaveLocked(a, func(s stay) bool { return matches(s.topic) }) })
}

// Disconnected remembers the latest disconnect of a user, for connections that are being opened. The numbers grow.
func (t *Table) Disconnected(user User, number uint32, code int, reason string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.disconnects) == maxDisconnects {
		t.forgotten = number - 1
		clear(t.disconnects)
	}
	t.disconnects[user] = disconnect{number, code, reason}
}

// DisconnectOf returns the disconnect that concerns a user: after reports whether a number is that of one after the
// authentication. The code is 0 if it is unknown whether there is one.
func (t *Table) DisconnectOf(user User, after func(number uint32) bool) (code int, reason string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d, ok := t.disconnects[user]; ok && after(d.number) {
		return d.code, d.reason, true
	}
	return 0, "", after(t.forgotten)
}

// NodeLeft holds the members of a node that has ended until their clients cannot come back. It may be called before or
// after their changes are reported.
func (t *Table) NodeLeft(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	maps.DeleteFunc(t.ended, func(_ string, at time.Duration) bool { return now-at >= nodeMemory })
	t.ended[node] = now
	for a := range t.absences[node] {
		if a.state == held {
			a.topics[0].until = now + a.Stays
			t.setFirstLocked(a)
		}
	}
}

// NodeReturned notes that a node is there.
func (t *Table) NodeReturned(node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.ended, node)
}

// Len returns how many sessions are waited for, and how many clients stay present without a session.
func (t *Table) Len() (sessions, others int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[*Absence]struct{}{} // each once, although it has several keys
	for _, of := range t.absences {
		maps.Copy(all, of)
	}
	for a := range all {
		switch {
		case a.waits():
			sessions++
		case a.state == grace:
			others++
		}
	}
	return sessions, others
}

// Close forgets everyone: other nodes let the members stay.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, all := range t.absences {
		for a := range all {
			a.topics = nil
			t.moveLocked(a, out)
		}
	}
}
