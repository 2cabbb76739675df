package session

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// A testStore keeps values, and notes what happens to records.
type testStore struct {
	mu      sync.Mutex
	version uint64
	values  map[string]testValue
	log     []string // "stored" or "deleted", for records
	calls   int
	away    bool
	full    bool // stores nothing, but loads and deletes
}

type testValue struct {
	broker.Value

	until time.Time
}

func newTestStore() *testStore {
	return &testStore{values: map[string]testValue{}}
}

var errAway = errors.New("the store is away")

// LoadValue returns a value that has not expired.
func (b *testStore) LoadValue(_ context.Context, key string) (broker.Value, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	if b.away {
		return broker.Value{}, errAway
	}
	v := b.currentLocked(key).Value
	v.Data = slices.Clone(v.Data)
	return v, nil
}

func (b *testStore) setAway(away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = away
}

func (b *testStore) currentLocked(key string) testValue {
	v := b.values[key]
	if !v.until.After(time.Now()) {
		return testValue{}
	}
	return v
}

// StoreValue stores a value of the version.
func (b *testStore) StoreValue(_ context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	return b.change(key, version, lifetime, func([]byte) ([]byte, bool) { return slices.Clone(data), true })
}

// PatchValue changes a part of a value.
func (b *testStore) PatchValue(_ context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	return b.change(key, version, lifetime, p.Apply)
}

func (b *testStore) change(key string, version uint64, lifetime time.Duration, to func([]byte) ([]byte, bool)) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	current := b.currentLocked(key)
	data, ok := to(current.Data)
	switch {
	case b.away:
		return 0, errAway
	case b.full && lifetime > 0:
		return 0, errors.Errorf(errors.ResourceExhausted, "the store is full")
	case current.Version != version:
		return 0, errors.Errorf(errors.Aborted, "the value has changed")
	case !ok:
		return 0, errors.Errorf(errors.InvalidArgument, "the value is too short")
	}
	if lifetime <= 0 {
		b.noteLocked(key, "deleted")
		delete(b.values, key)
		return 0, nil
	}
	b.noteLocked(key, "stored")
	b.version++
	b.values[key] = testValue{broker.Value{Data: data, Version: b.version}, time.Now().Add(lifetime)}
	return b.version, nil
}

func (b *testStore) noteLocked(key, what string) {
	if strings.HasPrefix(key, recordKey("")) {
		b.log = append(b.log, what)
	}
}

// record returns the record of a session, which is zero if there is none.
func (b *testStore) record(id string) (rec record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v := b.currentLocked(recordKey(id)); v.Version != 0 {
		_ = decode(v.Data, &rec)
	}
	return rec
}

// replace makes a record that of another connection, with the next generation, or deletes it.
func (b *testStore) replace(id string, rec *record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rec == nil {
		delete(b.values, recordKey(id))
		return
	}
	b.version++
	b.values[recordKey(id)] = testValue{broker.Value{Data: encode(rec), Version: b.version}, time.Now().Add(time.Hour)}
}
