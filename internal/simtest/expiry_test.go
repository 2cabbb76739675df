package simtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// An issue is a token that a client got.
type issue struct {
	at      time.Time
	seconds int
	expired bool // the token before had expired, or was about to
}

// expiryRecord has the tokens of each client. A client that must not refresh gets no token while it is connected.
type expiryRecord struct {
	mu      sync.Mutex
	issues  map[*life][]issue
	refuses map[*simClient]bool // the next refresh fails
	refused map[*simClient][]time.Time
}

// Identities expire after 20 to 90 seconds; clients refresh them, except when they get no token.
func expiryFeature() feature {
	return feature{
		begin: func(*world) any {
			return &expiryRecord{issues: map[*life][]issue{}, refuses: map[*simClient]bool{}, refused: map[*simClient][]time.Time{}}
		},
		verbs: []verb{
			{name: "expire", weight: [3]int{2, 2, 2}, draw: func(d *draw, s *step) { d.client(s); s.N = 20 + d.IntN(71) }, run: func(w *world, s step) {
				d := w.clients[s.Client]
				d.mu.Lock()
				defer d.mu.Unlock()
				d.tokenLives = s.N
			}},
			{name: "refuseToken", weight: [3]int{1, 1, 1}, draw: (*draw).client, run: func(w *world, s step) {
				if w.plan.Mood == calm && w.plan.Seed%8 == 0 {
					return // half of the calm plans keep all sessions
				}
				w.fault() // it may cost the session, with what waits for an answer
				r := record[*expiryRecord](w)
				r.mu.Lock()
				defer r.mu.Unlock()
				r.refuses[w.clients[s.Client]] = true
			}},
		},
		check: (*world).checkExpiry,
	}
}

// token is client.Options.Token. The next refresh of a device that must not refresh fails; another connection gets a token.
func (l *life) token(_ context.Context, expired bool) (string, error) {
	d := l.device
	r := record[*expiryRecord](d.world)
	r.mu.Lock()
	defer r.mu.Unlock()
	if expired && r.refuses[d] && l.connected() {
		delete(r.refuses, d)
		r.refused[d] = append(r.refused[d], time.Now())
		return "", errors.New("the user has to log in")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r.issues[l] = append(r.issues[l], issue{time.Now(), d.tokenLives, expired})
	return fmt.Sprintf("%s/%d/%d", d.User, d.index, d.tokenLives), nil
}

// connected reports whether the client has a connection.
func (l *life) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns) > 0 && l.conns[len(l.conns)-1].to.IsZero()
}

// expiryTime is how late a client may learn of the end of its connection, without faults.
const expiryTime = 3 * time.Second

func (w *world) checkExpiry() {
	if w.plan.Mood != calm { // where the network and the nodes have no faults
		return
	}
	r := record[*expiryRecord](w)
	for _, d := range w.clients {
		for _, l := range d.lives {
			for _, c := range l.conns {
				w.checkConnExpiry(r, l, c)
			}
		}
	}
}

// checkConnExpiry checks that a connection is closed for its identity only if that was not refreshed, and then in time.
func (w *world) checkConnExpiry(r *expiryRecord, l *life, c span) {
	end := c.to
	if end.IsZero() {
		end = time.Now()
	}
	expires := time.Time{} // the latest time at which the identity of a token expires
	forever := false
	for _, i := range r.issues[l] {
		if i.at.After(end) {
			break
		}
		forever = i.seconds == 0
		expires = i.at.Add(time.Duration(i.seconds) * time.Second)
	}
	closed := c.err != nil && strings.Contains(c.err.Error(), "closed with 4401")
	refused := false
	for _, at := range r.refused[l.device] {
		refused = refused || !at.Before(c.from) && !at.After(end)
	}
	switch {
	case closed && (forever || end.Before(expires)):
		w.Errorf("calm: client %d lost a connection for its identity at %v, which expires at %v", l.device.index, end.Sub(w.began), expires.Sub(w.began))
	case closed && !refused:
		w.Errorf("calm: client %d lost a connection for its identity at %v, though it got a token when it asked", l.device.index, end.Sub(w.began))
	case !forever && end.Sub(expires) > expiryTime:
		w.Errorf("calm: client %d kept a connection until %v, though its identity has expired at %v", l.device.index, end.Sub(w.began), expires.Sub(w.began))
	}
}
