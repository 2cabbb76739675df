package memstore

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/random"
)

// values are the values of a [Store]. Its zero value is empty. Every change also removes a few values
// that have expired.
type values struct {
	mu    sync.Mutex
	byKey map[string]value
}

type value struct {
	broker.Value

	expires time.Time
}

// LoadValue returns a value, as [broker.ValueStore] says.
func (s *Store) LoadValue(key string) broker.Value { return s.values.load(key) }

// StoreValue replaces a value, as [broker.ValueStore] says. Values have memory of their own.
func (s *Store) StoreValue(key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	return s.changeValue(key, func([]byte) ([]byte, bool) { return bytes.Clone(data), true }, version, lifetime)
}

// PatchValue changes a value, as [broker.ValueStore] says.
func (s *Store) PatchValue(key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	return s.changeValue(key, p.Apply, version, lifetime)
}

// changeValue replaces the data of a value by what change returns, in new memory, unless that is false.
func (s *Store) changeValue(key string, change func([]byte) ([]byte, bool), version uint64, lifetime time.Duration) (uint64, error) {
	newVersion, missing, err := s.values.store(key, change, version, lifetime, s.reserveValue)
	if missing > 0 {
		s.valueMemory.release(s.values.free(time.Now()))
		newVersion, missing, err = s.values.store(key, change, version, lifetime, s.reserveValue)
	}
	if missing > 0 {
		return 0, &errors.Error{
			Code:    errors.ResourceExhausted,
			Message: "the value was not stored, because the memory for values is full",
			Err:     fmt.Errorf("memstore: %d of %d bytes are in use, and %d more are needed", s.valueMemory.used.Load(), s.maxValueBytes(), missing),
		}
	}
	return newVersion, err
}

// reserveValue adds n bytes to what values use, unless that is too much.
func (s *Store) reserveValue(n int64) bool { return s.valueMemory.reserve(n, s.maxValueBytes()) }

// maxValueBytes returns the bound of the memory of values.
func (s *Store) maxValueBytes() int64 { return s.maxBytes() / 4 }

func (s *values) load(key string) broker.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.currentLocked(key, time.Now())
	v.Data = bytes.Clone(v.Data)
	return v.Value
}

// currentLocked returns a value, or the zero value if there is none or it has expired.
func (s *values) currentLocked(key string, now time.Time) value {
	if v := s.byKey[key]; now.Before(v.expires) {
		return v
	}
	return value{}
}

// store replaces a value, or returns how many bytes of memory it needs that are not free.
func (s *values) store(key string, change func([]byte) ([]byte, bool), version uint64, lifetime time.Duration, reserve func(bytes int64) bool) (newVersion uint64, missing int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	current := s.currentLocked(key, now)
	if current.Version != version {
		return 0, 0, errors.Errorf(errors.Aborted, "the value of %q has another version", key)
	}
	reserve(-s.clean(4, now))
	if lifetime <= 0 {
		reserve(-s.remove(key))
		return 0, 0, nil
	}
	data, ok := change(current.Data)
	if !ok {
		return 0, 0, errors.Errorf(errors.InvalidArgument, "the value of %q is shorter than the patch", key)
	}
	growth := valueSize(key, data)
	if old, ok := s.byKey[key]; ok {
		growth -= valueSize(key, old.Data)
	}
	if !reserve(growth) {
		return 0, growth, nil
	}
	if s.byKey == nil {
		s.byKey = map[string]value{}
	}
	next := random.Uint64() | 1
	for next == version {
		next = random.Uint64() | 1
	}
	s.byKey[key] = value{broker.Value{Data: data, Version: next}, now.Add(lifetime)}
	return next, 0, nil
}

func valueSize(key string, data []byte) int64 { return valueBytes + int64(len(key)+cap(data)) }

// remove removes a value, if there is one, and returns how much memory that frees. The memory of the
// map is freed when the last value is removed.
func (s *values) remove(key string) (freed int64) {
	v, ok := s.byKey[key]
	if !ok {
		return 0
	}
	if delete(s.byKey, key); len(s.byKey) == 0 {
		s.byKey = nil
	}
	return valueSize(key, v.Data)
}

// clean removes expired values among up to n random ones, and returns how much memory that frees. A
// change that adds a value looks at more than one, so the expired ones do not accumulate.
func (s *values) clean(n int, now time.Time) (freed int64) {
	for key, v := range s.byKey {
		if !now.Before(v.expires) {
			freed += s.remove(key)
		}
		if n--; n == 0 {
			break
		}
	}
	return freed
}

// free removes some expired values, and returns how much memory that frees.
func (s *values) free(now time.Time) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clean(maxFreedValues, now)
}
