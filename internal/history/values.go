package history

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// values implements [broker.ValueStore] in memory. Its zero value is empty. Every change also removes
// a few values that have expired.
type values struct {
	mu    sync.Mutex
	byKey map[string]value
}

type value struct {
	broker.Value

	expires time.Time
}

func (s *values) load(key string) broker.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, _ := s.current(key, time.Now())
	v.Data = bytes.Clone(v.Data)
	return v.Value
}

// current returns a value that has not expired. It must be called with the lock held.
func (s *values) current(key string, now time.Time) (v value, ok bool) {
	v, ok = s.byKey[key]
	if !ok || !now.Before(v.expires) {
		return value{}, false
	}
	return v, true
}

func (s *values) store(key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if v, _ := s.current(key, now); v.Version != version {
		return 0, errors.Errorf(errors.Aborted, "the value of %q has another version", key)
	}
	s.clean(now)
	if lifetime <= 0 {
		delete(s.byKey, key)
		return 0, nil
	}
	if s.byKey == nil {
		s.byKey = map[string]value{}
	}
	next := rand.Uint64() | 1
	for next == version {
		next = rand.Uint64() | 1
	}
	s.byKey[key] = value{broker.Value{Data: bytes.Clone(data), Version: next}, now.Add(lifetime)}
	return next, nil
}

// clean removes expired values among a few random ones: a change that adds a value looks at more than
// one, so the expired ones do not accumulate.
func (s *values) clean(now time.Time) {
	n := 0
	for key, v := range s.byKey {
		if !now.Before(v.expires) {
			delete(s.byKey, key)
		}
		if n++; n == 4 {
			return
		}
	}
}
