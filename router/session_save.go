package router

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// This file stores the record of a session: when it has changed, and again before it expires. At most
// one goroutine per session does so, and exists only meanwhile. It holds no lock while it calls the
// store. Between saves, a timer is set, or nothing if the connection has been closed.

const (
	saveTimeout    = 5 * time.Second
	minSaveBackoff = 100 * time.Millisecond
	maxSaveBackoff = 5 * time.Second
)

// refreshInterval is the longest time between two saves while the connection is open.
func (o ResumeOptions) refreshInterval() time.Duration { return o.Within / 3 }

// changedLocked makes a goroutine store the record. If the store has just failed, the timer does.
func (s *session) changedLocked() {
	s.dirty = true
	if !s.saving && s.backoff == 0 {
		s.startSavingLocked()
	}
}

func (s *session) startSavingLocked() {
	r := s.conn.router
	if s.over || r.sessionsClosed.Load() {
		return
	}
	s.saving = true
	r.savingSessions.Add(1)
	go s.saveAll()
}

// tick is called by the timer.
func (s *session) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty, s.mustCatchUp = true, true
	if !s.saving {
		s.startSavingLocked()
	}
}

// saveAll stores the record until it has not changed meanwhile.
func (s *session) saveAll() {
	defer s.conn.router.savingSessions.Done()
	returned := false
	defer func() {
		if !returned { // the broker has called runtime.Goexit
			s.finishWrite(sessionWrite{}, 0, errExited)
		}
	}()
	for s.saveOnce() {
	}
	returned = true
}

func (s *session) saveOnce() (again bool) {
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	if s.followsRevocations() {
		if err := s.catchUp(ctx); err != nil {
			return s.finishWrite(sessionWrite{}, 0, err)
		}
	}
	w, ok := s.nextWrite()
	if !ok {
		return false
	}
	version, err := s.write(ctx, w)
	again = s.finishWrite(w, version, err)
	if err == errTakenOver { //nolint:errorlint // never wrapped
		s.stopServing()
	}
	return again
}

// followsRevocations reports whether the session must catch up with the revocations of its user before
// it is stored. After the connection has been closed, the next one does.
func (s *session) followsRevocations() bool {
	user := s.conn.Identity().user()
	s.mu.Lock()
	defer s.mu.Unlock()
	return (s.mustCatchUp || s.revocationsOf != user) && s.until.IsZero() && !s.over
}

// saveFirst stores the record of a new session, whose saving is set. It reports whether it could.
func (s *session) saveFirst(ctx context.Context) bool {
	w, _ := s.nextWrite()
	version, err := s.write(ctx, w)
	if err == nil {
		if s.finishWrite(w, version, nil) {
			s.savedFirst()
		}
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saving = false
	if errors.CodeOf(err) != broker.OutcomeUnknown {
		s.finishLocked() // nothing is stored
	}
	return false
}

// savedFirst waits for the next change, or stores what has changed meanwhile.
func (s *session) savedFirst() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirty {
		s.startSavingLocked()
	} else {
		s.restLocked()
	}
}

// A sessionWrite is what one save stores.
type sessionWrite struct {
	data       []byte
	stored     []byte // the record that it replaces
	version    uint64 // of stored; 0 if there is none
	generation uint64
	lifetime   time.Duration // 0 deletes the record
}

// nextWrite returns what must be stored, or false if nothing has changed.
func (s *session) nextWrite() (w sessionWrite, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || !s.dirty {
		s.restLocked()
		return sessionWrite{}, false
	}
	s.dirty = false
	now, o := time.Now(), s.conn.router.opts.Resume
	w = sessionWrite{stored: s.stored, version: s.version, generation: s.record.Generation, lifetime: o.Within + o.refreshInterval()}
	if !s.until.IsZero() {
		w.lifetime = s.until.Sub(now)
	}
	w.lifetime = max(0, s.record.lifetime(w.lifetime, now))
	if s.discarded {
		w.lifetime = 0
	}
	w.data = s.record.encode()
	return w, true
}

// restLocked ends the saving.
func (s *session) restLocked() {
	s.saving = false
	switch {
	case s.over:
	case s.until.IsZero():
		interval := s.conn.router.opts.Resume.refreshInterval()
		s.setTimerLocked(interval*3/4 + rand.N(interval/4)) // sessions that began together are stored apart
	case s.timer != nil:
		s.timer.Stop()
	}
}

func (s *session) setTimerLocked(d time.Duration) {
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.tick)
	} else {
		s.timer.Reset(d)
	}
}

// Reasons why a session is over.
var (
	errTakenOver   = errors.New("router: another connection has resumed the session")
	errSessionLost = errors.New("router: the record of the session has expired, or the store has lost it")
)

// write stores the record, unless it belongs to another connection.
func (s *session) write(ctx context.Context, w sessionWrite) (version uint64, err error) {
	r := s.conn.router
	version, err = r.storeSession(ctx, s.id, w)
	if errors.CodeOf(err) != errors.Aborted {
		return version, err
	}
	rec, current, err := r.loadSession(ctx, s.id)
	switch {
	case err != nil:
		return 0, err
	case current.Version == 0:
		return 0, errSessionLost
	case rec.Generation > w.generation, rec.Generation == w.generation && rec.ConnID != s.conn.id:
		return 0, errTakenOver
	}
	// An earlier save has been made although its outcome was unknown, or the store has failed over to
	// an older record.
	return r.histories.StoreValue(ctx, sessionKey(s.id), w.data, current.Version, w.lifetime)
}

// storeSession stores a record. It sends only what differs from the record that it replaces.
func (r *Router) storeSession(ctx context.Context, id string, w sessionWrite) (version uint64, err error) {
	if w.version == 0 {
		return r.histories.StoreValue(ctx, sessionKey(id), w.data, 0, w.lifetime)
	}
	return r.histories.PatchValue(ctx, sessionKey(id), broker.NewPatch(w.stored, w.data), w.version, w.lifetime)
}

// finishWrite records the result of a save. It reports whether there may be more to store.
func (s *session) finishWrite(w sessionWrite, version uint64, err error) (more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && w.lifetime > 0:
		s.stored, s.version, s.backoff = w.data, version, 0
		return true
	case err == errTakenOver: //nolint:errorlint // never wrapped
		s.takeOverLocked()
	case err == nil, err == errSessionLost: //nolint:errorlint // never wrapped
		s.finishLocked()
	default:
		s.retryLocked()
	}
	s.saving = false
	return false
}

// retryLocked sets the timer after a failed save, unless the record has expired by itself.
func (s *session) retryLocked() {
	o := s.conn.router.opts.Resume
	if !s.until.IsZero() && time.Since(s.until) > o.refreshInterval() {
		s.finishLocked()
		return
	}
	s.dirty = true
	s.backoff = min(max(2*s.backoff, minSaveBackoff), maxSaveBackoff)
	s.setTimerLocked(s.backoff/2 + rand.N(s.backoff))
}

// closeSessions waits until the records of sessions have been stored, or ctx is done.
func (r *Router) closeSessions(ctx context.Context) {
	saved := make(chan struct{})
	go func() {
		r.savingSessions.Wait()
		close(saved)
	}()
	select {
	case <-saved:
	case <-ctx.Done():
	}
	r.sessionsClosed.Store(true)
	r.away.stop()
	r.topics.StopGrace()
}
