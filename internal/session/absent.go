package session

import (
	"context"
	"net/netip"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// This file bounds the sessions whose clients are away: each is a record in the store until its
// time is up, and a client can leave one behind with every connection. A user who stays present
// without a session counts, too.

// absentees are the clients that are away, by user and by address, oldest first. Node.mu guards them.
type absentees struct {
	byUser    map[User][]absentee
	byAddress map[netip.Prefix][]absentee
}

type absentee struct {
	end   func()
	until time.Time
}

// Leave adds a user who stays present without a session, and ends the oldest one of the user or of the
// address if there are too many: end is then called on a goroutine of its own.
func (n *Node) Leave(user User, address netip.Prefix, end func()) {
	now := time.Now()
	added := absentee{end, now.Add(max(n.config.Within, n.config.LongestGrace()))}
	n.mu.Lock()
	defer n.mu.Unlock()
	var ended []absentee
	if user.UserID != "" {
		ended = leave(&n.absent.byUser, user, added, n.config.PerUser, now)
	}
	if address.IsValid() {
		ended = append(ended, leave(&n.absent.byAddress, address, added, n.config.PerAddress, now)...)
	}
	for _, a := range ended {
		n.saving.run(a.end)
	}
}

// leave adds an absentee to those of a key, and returns those that are too many.
func leave[K comparable](absent *map[K][]absentee, key K, added absentee, limit int, now time.Time) (ended []absentee) {
	if *absent == nil {
		*absent = map[K][]absentee{}
	}
	looked := 0
	for other, all := range *absent { // keys that are not used again do not accumulate
		if !all[len(all)-1].until.After(now) {
			delete(*absent, other)
		}
		if looked++; looked == 4 {
			break
		}
	}
	all := append((*absent)[key], added)
	for !all[0].until.After(now) {
		all = all[1:]
	}
	if excess := len(all) - limit; excess > 0 {
		ended, all = all[:excess:excess], all[excess:]
	}
	if len(all) > 0 {
		(*absent)[key] = all
	}
	return ended
}

// endOldest returns the function that ends the session because it is one of too many. It keeps only what
// it needs of the session.
func (s *Session) endOldest() func() {
	n, id, connID := s.node, s.id, s.conn.ID
	return func() { n.endOldest(id, connID) }
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
