package session

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/rules"
)

// This file stores the record of a session: when it has changed, and again before it expires. At most
// one goroutine per session does so, and exists only meanwhile. It holds no lock while it calls the
// store. Between saves, a timer is set, or nothing if the connection has been closed.

const (
	firstTimeout = 2 * time.Second // how long the greeting waits for the store
	saveTimeout  = 5 * time.Second
	maxSaveWait  = 5 * time.Second // after failures; a node may have many sessions, each of which calls the store
)

// refreshInterval is the longest time between two saves while the connection is open.
func (n *Node) refreshInterval() time.Duration { return n.config.Within / 3 }

// changedLocked makes a goroutine store the record. If the store has just failed, the timer does.
func (s *Session) changedLocked() {
	s.dirty = true
	if !s.saving && s.backoff == (rules.Backoff{}) {
		s.startSavingLocked()
	}
}

// changedLaterLocked is changedLocked for a change that no client waits for.
func (s *Session) changedLaterLocked() {
	if s.settled || s.saving || !s.node.later.add(s.saveLater) {
		s.changedLocked()
	}
	s.dirty = true
}

func (s *Session) saveLater() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirty {
		s.changedLocked()
	}
}

func (s *Session) startSavingLocked() {
	if s.settled || !s.node.saving.begin() {
		return
	}
	s.saving = true
	go s.saveAll()
}

func (s *Session) endSavingLocked() {
	s.saving = false
	if s.saved != nil {
		close(s.saved)
		s.saved = nil
	}
}

// AwaitSave waits until what has changed is stored, or the store has failed, or ctx is done. It reports false if another connection has
// resumed the session, perhaps without the change.
func (s *Session) AwaitSave(ctx context.Context) bool {
	s.mu.Lock()
	var saved chan struct{}
	if s.saving {
		if s.saved == nil {
			s.saved = make(chan struct{})
		}
		saved = s.saved
	}
	s.mu.Unlock()
	if saved != nil {
		select {
		case <-saved:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.dirty && !s.saving || s.state != superseded && s.state != moved
}

// Place implements [timerqueue.Entry].
func (s *Session) Place() *int32 { return &s.place }

// Fire is called when the record must be stored again, or could not be stored the first time.
func (s *Session) Fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancelFirst != nil {
		s.cancelFirst()
		return
	}
	s.dirty, s.mustCatchUp = true, true
	if !s.saving {
		s.startSavingLocked()
	}
}

// saveAll stores the record until it has not changed meanwhile.
func (s *Session) saveAll() {
	defer s.node.saving.end()
	returned := false
	defer func() {
		if !returned { // the broker has not returned
			s.finish(write{}, 0, errExited)
		}
	}()
	for s.saveOnce() {
	}
	returned = true
}

var errExited = errors.New("session: the store has ended the goroutine")

func (s *Session) saveOnce() (again bool) {
	ctx, cancel := context.WithTimeout(context.Background(), saveTimeout)
	defer cancel()
	if s.followsRevocations() {
		if err := s.CatchUp(ctx); err != nil {
			return s.finish(write{}, 0, err)
		}
	}
	w, ok := s.nextWrite()
	if !ok {
		return false
	}
	version, err := s.write(ctx, w)
	return s.finish(w, version, err)
}

// StoreFirst stores the record of a new session. If the store does not answer, the record is stored later, and until
// then, a client that resumes the session learns that it has lost it. StoreFirst reports false if ctx is done then, or the store
// has ended the goroutine: the session has ended, and its client must not learn of it.
func (s *Session) StoreFirst(ctx context.Context) (begun bool) {
	err := errExited
	defer func() { // even if the store does not return
		if !begun {
			s.handle(func() []Action { return s.dropFirstLocked(err) })
		}
	}()
	w, version, err := s.tryFirst(ctx)
	if err != nil && ctx.Err() != nil {
		return false
	}
	more := s.finish(w, version, err)
	if ctx.Err() != nil {
		return false
	}
	if more {
		s.handle(s.storedFirstLocked)
	}
	return true
}

// tryFirst stores the record of a new session, unless the store takes too long.
func (s *Session) tryFirst(ctx context.Context) (w write, version uint64, err error) {
	ctx, cancel := s.firstContext(ctx)
	defer cancel()
	s.node.gather(ctx)
	if err := s.CatchUp(ctx); err != nil {
		return write{}, 0, err
	}
	w, _ = s.nextWrite()
	version, err = s.write(ctx, w)
	return w, version, err
}

// firstContext returns a context with the values of another. It ends when the store takes too long, or the connection is
// closed. Deriving it from that of a message, with a timer of its own, would cost more than the call of the store.
func (s *Session) firstContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != open {
		cancel()
	}
	s.cancelFirst = cancel
	s.node.timers.Set(s, firstTimeout)
	return ctx, func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cancelFirst = nil
		s.node.timers.Stop(s)
	}
}

// storedFirstLocked stores what has changed meanwhile, or waits for the next change.
func (s *Session) storedFirstLocked() []Action {
	s.endSavingLocked()
	if s.dirty {
		s.startSavingLocked()
	} else {
		s.restLocked()
	}
	return nil
}

// dropFirstLocked ends the session, and deletes the record if there may be one.
func (s *Session) dropFirstLocked(err error) []Action {
	s.endSavingLocked()
	s.settled = err != nil && errors.CodeOf(err) != errors.OutcomeUnknown
	return s.abandonLocked()
}

// A write is what one save stores.
type write struct {
	data       []byte
	stored     []byte // the record that it replaces
	version    uint64 // of stored; 0 if there is none
	generation uint64
	lifetime   time.Duration // 0 deletes the record
}

// nextWrite returns what must be stored, or false if nothing has changed.
func (s *Session) nextWrite() (w write, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settled || !s.dirty {
		s.restLocked()
		return write{}, false
	}
	s.dirty = false
	n, now := s.node, time.Now()
	w = write{stored: s.stored, version: s.version, generation: s.generation, lifetime: n.config.Within + n.refreshInterval()}
	if !s.until.IsZero() {
		w.lifetime = s.until.Sub(now)
	}
	w.lifetime = max(0, s.record.lifetime(w.lifetime, now))
	if s.isOverLocked() {
		w.lifetime = 0
	}
	w.data = encode(&s.record)
	return w, true
}

// restLocked ends the saving.
func (s *Session) restLocked() {
	s.endSavingLocked()
	switch {
	case s.settled:
	case s.until.IsZero():
		interval := s.node.refreshInterval()
		s.node.timers.Set(s, interval*3/4+random.N(interval/4)) // sessions that began together are stored apart
	default:
		s.node.timers.Stop(s)
	}
	s.forgetUnusedLocked()
}

// Reasons why nothing is stored any more.
var (
	errTakenOver = errors.New("session: another connection has resumed the session")
	errLost      = errors.New("session: the record has expired, or the store has lost it")
)

// write stores the record, unless it belongs to another connection.
func (s *Session) write(ctx context.Context, w write) (version uint64, err error) {
	version, err = s.node.store(ctx, s.id, w)
	if errors.CodeOf(err) != errors.Aborted {
		return version, err
	}
	rec, current, err := s.node.load(ctx, s.id)
	switch {
	case err != nil:
		return 0, err
	case current.Version == 0:
		return 0, errLost
	case rec.Generation > w.generation, rec.Generation == w.generation && rec.ConnID != s.conn.ID:
		return 0, errTakenOver
	}
	// An earlier save has been made although its outcome was unknown, or the store has failed over to
	// an older record.
	return s.node.config.Store.StoreValue(ctx, recordKey(s.id), w.data, current.Version, w.lifetime)
}

// finish records the result of a save. It reports whether there may be more to store.
func (s *Session) finish(w write, version uint64, err error) (more bool) {
	s.handle(func() (actions []Action) {
		more, actions = s.savedLocked(w, version, err)
		return actions
	})
	return more
}

func (s *Session) savedLocked(w write, version uint64, err error) (more bool, actions []Action) {
	switch {
	case err == nil && w.lifetime > 0:
		s.stored, s.version, s.backoff = w.data, version, rules.Backoff{}
		return true, nil
	case err == errTakenOver: //nolint:errorlint // never wrapped
		s.dirty = true
		actions = s.supersedeLocked()
	case err == nil, err == errLost: //nolint:errorlint // never wrapped
		s.loseLocked()
	default:
		s.retryLocked()
	}
	s.endSavingLocked()
	s.forgetUnusedLocked()
	return false, actions
}

// retryLocked sets the timer after a failed save, unless the record has expired by itself.
func (s *Session) retryLocked() {
	if !s.until.IsZero() && time.Since(s.until) > s.node.refreshInterval() {
		s.loseLocked()
		return
	}
	s.dirty = true
	s.backoff.Max = maxSaveWait
	s.node.timers.Set(s, s.backoff.Next())
}
