package router

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/ipprefix"
)

// This file bounds the sessions whose clients are away: each is a record in the store until its
// time is up, and a client can leave one behind with every connection. A user who stays present
// without a session counts, too.

// absentSessions counts the sessions that have been left on this node, oldest first.
type absentSessions struct {
	mu        sync.Mutex // may be acquired under session.mu; nothing is called under it
	byUser    map[userKey][]absentSession
	byAddress map[netip.Prefix][]absentSession
}

// An absentSession belongs to a connection that has been closed, unless another one has resumed it.
// Its ID is empty if the user stays present without a session.
type absentSession struct {
	id, connID string
	until      time.Duration // since the router was created
}

// leaveSessionLocked adds a session whose connection has been closed, and ends the oldest one of
// the user or of the address if there are too many.
func (s *session) leaveSessionLocked() {
	s.conn.router.leaveAbsent(s.id, s.conn, userKey{s.record.TenantID, s.record.UserID})
}

// leaveGrace does the same for a connection without a session, whose user stays present.
func (r *Router) leaveGrace(c *Conn) { r.leaveAbsent("", c, c.Identity().user()) }

func (r *Router) leaveAbsent(sessionID string, c *Conn, user userKey) {
	limits, now := &r.opts.Limits, r.sinceStart(time.Now())
	added := absentSession{sessionID, c.id, now + max(r.opts.Resume.Within, r.topics.MaxGrace)}
	var ended []absentSession
	r.absent.mu.Lock()
	defer r.absent.mu.Unlock()
	if user.userID != "" {
		ended = leave(&r.absent.byUser, user, added, limits.SessionsPerUser, now)
	}
	if c.ip.IsValid() {
		ended = append(ended, leave(&r.absent.byAddress, ipprefix.Of(c.ip), added, limits.SessionsPerIP, now)...)
	}
	for _, a := range ended {
		r.savingSessions.Add(1)
		go r.endAbsent(a)
	}
}

// leave adds a session to those of a key, and returns those that are too many.
func leave[K comparable](sessions *map[K][]absentSession, key K, added absentSession, limit int, now time.Duration) (ended []absentSession) {
	if *sessions == nil {
		*sessions = map[K][]absentSession{}
	}
	looked := 0
	for other, all := range *sessions { // keys that are not used again do not accumulate
		if all[len(all)-1].until <= now {
			delete(*sessions, other)
		}
		if looked++; looked == 4 {
			break
		}
	}
	all := append((*sessions)[key], added)
	for all[0].until <= now {
		all = all[1:]
	}
	if excess := len(all) - limit; excess > 0 {
		ended, all = all[:excess:excess], all[excess:]
	}
	if len(all) > 0 {
		(*sessions)[key] = all
	}
	return ended
}

// endAbsent removes the record of a session, unless another connection has resumed it. If the store
// fails, the record expires by itself.
func (r *Router) endAbsent(a absentSession) {
	defer r.savingSessions.Done()
	if a.id == "" {
		r.topics.LeaveAll(a.connID)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	for range claimAttempts {
		rec, value, err := r.loadSession(ctx, a.id)
		if err != nil || value.Version == 0 {
			return
		}
		if rec.ConnID != a.connID { // it waits until the other connection is present in its topics
			r.away.giveUp(a.connID)
			return
		}
		_, err = r.histories.StoreValue(ctx, sessionKey(a.id), nil, value.Version, 0)
		if err == nil {
			r.endAway(a.connID, SessionLimited)
		}
		if errors.CodeOf(err) != errors.Aborted { // the last save of its connection may have come between
			return
		}
	}
}
