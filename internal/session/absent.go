package session

import (
	"context"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// This file bounds the sessions whose clients are away: each is a record in the store until its
// time is up, and a client can leave one behind with every connection. A user who stays present
// without a session counts, too.

// absentees are the clients that are away, by what bounds them or ends their absence, oldest first. Node.mu
// guards them.
type absentees map[absentKey][]*absentee

// An absentKey has one of the fields.
type absentKey struct {
	user    User
	address netip.Prefix
	session string
}

type absentee struct {
	session    string // empty for a user without one
	generation uint64
	end        func()
	until      time.Time
	keys       []absentKey
}

// unlimited is how many may be away where nothing bounds them. There is no list of them, since to remove one
// takes the longer, the longer its list is.
const unlimited = math.MaxInt

// Leave adds a user who stays present without a session, and ends the oldest one of the user or of the
// address if there are too many: end is then called on a goroutine of its own.
func (n *Node) Leave(user User, address netip.Prefix, end func()) {
	n.leave(user, address, &absentee{end: end})
}

func (n *Node) leave(user User, address netip.Prefix, a *absentee) {
	now := time.Now()
	a.until = now.Add(max(n.config.Within, n.config.LongestGrace()))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.absent.expireSome(now)
	if user.UserID != "" && n.config.PerUser < unlimited {
		n.addAbsentLocked(absentKey{user: user}, a, n.config.PerUser, now)
	}
	if address.IsValid() && n.config.PerAddress < unlimited {
		n.addAbsentLocked(absentKey{address: address}, a, n.config.PerAddress, now)
	}
	if a.session != "" && len(a.keys) > 0 {
		n.addAbsentLocked(absentKey{session: a.session}, a, unlimited, now)
	}
}

// addAbsentLocked adds an absentee to those of a key, and ends those that are too many.
func (n *Node) addAbsentLocked(key absentKey, a *absentee, limit int, now time.Time) {
	n.absent.expire(key, now)
	n.absent[key] = append(n.absent[key], a)
	a.keys = append(a.keys, key)
	for all := n.absent[key]; len(all) > limit; all = n.absent[key] {
		n.saving.run(all[0].end)
		n.absent.remove(all[0])
	}
}

// comeBack ends the absence of clients whose session a later connection has, which is in the topics.
func (n *Node) comeBack(id string, generation uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range slices.Clone(n.absent[absentKey{session: id}]) {
		if a.generation < generation {
			n.absent.remove(a)
		}
	}
}

// expireSome removes those whose time is up, of a few keys: what is not used again does not accumulate.
func (l absentees) expireSome(now time.Time) {
	looked := 0
	for key := range l {
		l.expire(key, now)
		if looked++; looked == 8 {
			break
		}
	}
}

func (l absentees) expire(key absentKey, now time.Time) {
	for all := l[key]; len(all) > 0 && !all[0].until.After(now); all = l[key] {
		l.remove(all[0])
	}
}

// remove removes an absentee from those of all its keys.
func (l absentees) remove(a *absentee) {
	for _, key := range a.keys {
		if rest := slices.DeleteFunc(l[key], func(other *absentee) bool { return other == a }); len(rest) > 0 {
			l[key] = rest
		} else {
			delete(l, key)
		}
	}
}

// leaveBehind counts the session as one whose client is away. What is counted keeps only what it needs of
// the session.
func (s *Session) leaveBehind() {
	n, id, connID := s.node, s.id, s.conn.ID
	end := func() { n.endOldest(id, connID) }
	n.leave(s.record.user(), s.conn.Address, &absentee{session: id, generation: s.generation, end: end})
}

// endAttempts bounds how often a record is deleted that its connection has stored meanwhile.
const endAttempts = 5

// endOldest removes the record of a session, unless another connection has resumed it. If the store
// fails, the record expires by itself.
func (n *Node) endOldest(id, connID string) {
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	for range endAttempts {
		rec, value, err := n.load(ctx, id)
		if err != nil {
			return
		}
		event := func(s *Session) []Action { return s.endLocked(Limited) }
		switch {
		case value.Version == 0: // the connection waits although its client cannot come back
		case rec.ConnID == connID:
			_, err = n.config.Store.StoreValue(ctx, recordKey(id), nil, value.Version, 0)
		default: // the member waits until the other connection is present
			event = func(s *Session) []Action { return s.moveLocked(nil) }
		}
		if s := n.of(id, connID); err == nil && s != nil {
			s.handle(func() []Action { return event(s) })
		}
		if errors.CodeOf(err) != errors.Aborted { // the last save of the connection may have come between
			return
		}
	}
}
