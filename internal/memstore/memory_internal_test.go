package memstore

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// count returns the memory of everything in a store.
func (s *Store) count() (total int64) {
	for name, t := range s.topics {
		total += topicBytes + int64(len(name)) + publicationBytes*int64(len(t.stored.buffer)) + keyExpiryBytes*int64(len(t.keys.queue.buffer))
		for i := range t.stored.len() {
			total += int64(cap(t.stored.at(i).Packet) + len(t.stored.at(i).StateKey))
		}
		for key, e := range t.state.keys {
			total += stateBytes + int64(2*len(key)+cap(e.publication.Packet))
		}
		for i := range t.keys.queue.len() {
			total += keyBytes + int64(len(t.keys.queue.at(i).key))
		}
	}
	total += forgottenBytes * int64(len(s.first.forgotten))
	return total
}

// countValues returns the memory of the values in a store.
func (s *Store) countValues() (total int64) {
	for key, v := range s.values.byKey {
		total += valueBytes + int64(len(key)+cap(v.Data))
	}
	return total
}

// oldest returns the epoch whose topics are being forgotten.
func (e *firstEpochs) oldest() string {
	if e.previous != "" {
		return e.previous
	}
	return e.current
}

func TestMemory_ConstantsAreSizes(t *testing.T) {
	const word = 8
	if reflect.TypeFor[uintptr]().Size() != word {
		t.Skip("the sizes are those of a 64-bit system")
	}
	assert.EqualValues(t, reflect.TypeFor[broker.Publication]().Size(), publicationBytes)
	assert.EqualValues(t, reflect.TypeFor[keyExpiry]().Size(), keyExpiryBytes)
	element := func(key, value uintptr) int { return int(key+value) * 2 } // a map is at least 7/16 full when it has grown
	stringSize := reflect.TypeFor[string]().Size()
	assert.GreaterOrEqual(t, stateBytes, int(reflect.TypeFor[stateEntry]().Size())+element(stringSize, word))
	assert.GreaterOrEqual(t, keyBytes, element(stringSize, reflect.TypeFor[keyEntry]().Size()))
	assert.GreaterOrEqual(t, forgottenBytes, element(word, 0))
	assert.GreaterOrEqual(t, valueBytes, element(stringSize, reflect.TypeFor[value]().Size()))
	assert.GreaterOrEqual(t, topicBytes, int(reflect.TypeFor[topic]().Size())+element(stringSize, word)+2*word)
}

// TestStore_CountsItsMemory compares what a store counts with what the heap contains.
func TestStore_CountsItsMemory(t *testing.T) {
	const n = 50_000
	r := broker.Retention{Messages: n}
	for _, tt := range []struct {
		name string
		use  func(s *Store, i int) error
	}{
		{"publications", func(s *Store, i int) error {
			_, err := s.Append(broker.Append{Topic: strconv.Itoa(i % 100), Retention: r, Packet: make([]byte, 200)}, discard)
			return err
		}},
		{"topics", func(s *Store, i int) error {
			_, err := s.Append(broker.Append{Topic: "room/" + strconv.Itoa(i), Retention: broker.Retention{Bytes: 1}, Packet: make([]byte, 200)}, discard)
			return err
		}},
		{"topics that are forgotten", func(s *Store, i int) error {
			if i == 0 {
				s.first.of("first")
			}
			s.memory.release(-s.first.forget(&topic{name: strconv.Itoa(i), epoch: s.first.oldest()}))
			return nil
		}},
		{"topics with a publication", func(s *Store, i int) error {
			_, err := s.Append(broker.Append{Topic: "room/" + strconv.Itoa(i), Retention: r, Packet: make([]byte, 200)}, discard)
			return err
		}},
		{"state", func(s *Store, i int) error {
			_, err := s.Append(broker.Append{Topic: "state", Packet: make([]byte, 200), StateKey: "key " + strconv.Itoa(i)}, discard)
			return err
		}},
		{"idempotency keys", func(s *Store, i int) error {
			_, err := s.Append(broker.Append{Topic: "keys", IdempotencyKey: "key " + strconv.Itoa(i)}, discard)
			return err
		}},
		{"values", func(s *Store, i int) error {
			_, err := s.StoreValue("session "+strconv.Itoa(i), make([]byte, 300), 0, time.Hour)
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			heap := func() int64 {
				var stats runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&stats)
				return int64(stats.HeapAlloc) //nolint:gosec // far below the maximum
			}
			var s Store
			before := heap()
			for i := range n {
				require.NoError(t, tt.use(&s, i))
			}
			measured := heap() - before
			counted := s.memory.used.Load() + s.valueMemory.used.Load()
			t.Logf("%d bytes are counted and %d measured for each", counted/n, measured/n)
			assert.InEpsilon(t, measured, counted, 0.35)
			runtime.KeepAlive(&s)
		})
	}
}

// A filler makes random calls of a small store, and compares what it counts with what it contains.
type filler struct {
	t         *testing.T
	random    *rand.Rand
	store     Store
	published map[string]broker.Position // the last one of each topic
	counts    map[string]int             // how often something has happened
}

func TestStore_CountsExactlyAndStaysBelowMaximum(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			f := &filler{t: t, random: rand.New(rand.NewPCG(seed, 2)), published: map[string]broker.Position{}, counts: counts}
			f.store.MaxBytes = int64(10_000 + f.random.IntN(40_000))
			for range 800 {
				f.step()
				require.Equal(t, f.store.count(), f.store.memory.used.Load())
				require.LessOrEqual(t, f.store.memory.used.Load(), f.store.MaxBytes)
				require.Equal(t, f.store.countValues(), f.store.valueMemory.used.Load())
				require.LessOrEqual(t, f.store.valueMemory.used.Load(), f.store.MaxBytes/4)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, event := range []string{
		"publication", "publication rejected", "publication while almost full", "topic without publications", "value", "value rejected", "value deleted", "topics removed",
	} {
		assert.Greater(t, counts[event], 20, event)
	}
}

func (f *filler) step() {
	switch f.random.IntN(40) {
	case 0:
		time.Sleep(time.Duration(f.random.Int64N(int64(10 * time.Minute))))
	case 1:
		if f.random.IntN(5) == 0 {
			time.Sleep(30 * time.Hour)
			f.counts["topics removed"]++
		}
	case 2, 3, 4, 5:
		f.read()
	case 6, 7, 8, 9, 10:
		f.storeValue()
	default:
		f.append()
	}
}

func (f *filler) append() {
	a := broker.Append{
		Topic:     "topic " + strconv.Itoa(f.random.IntN(8)),
		Retention: broker.Retention{Messages: f.random.IntN(60), Age: time.Duration(1 + f.random.Int64N(int64(time.Hour))), Bytes: int64(f.random.IntN(3)) * 1000},
		Packet:    make([]byte, f.random.IntN(400), 400),
	}
	if f.random.IntN(2) == 0 {
		a.IdempotencyKey = "key " + strconv.Itoa(f.random.IntN(30))
	}
	if f.random.IntN(2) == 0 {
		a.StateKey, a.Removed = "state "+strconv.Itoa(f.random.IntN(20)), f.random.IntN(4) == 0
	}
	used := f.store.memory.used.Load()
	calls := 0
	got, err := f.store.Append(a, func(topic string, p broker.Publication) {
		calls++
		last := f.published[topic]
		if p.Position.Epoch == last.Epoch {
			require.Equal(f.t, last.Offset+1, p.Position.Offset)
		} else {
			require.EqualValues(f.t, 1, p.Position.Offset)
		}
		f.published[topic] = p.Position
	})
	if err != nil {
		require.Equal(f.t, errors.ResourceExhausted, errors.CodeOf(err), err)
		require.Zero(f.t, calls, "what is not stored is not published")
		require.Less(f.t, f.store.MaxBytes-f.store.memory.used.Load(), int64(7000), "the memory is not full")
		f.counts["publication rejected"]++
		return
	}
	require.Equal(f.t, !got.Duplicate, calls == 1)
	f.counts["publication"]++
	if f.store.MaxBytes-used < 400 {
		f.counts["publication while almost full"]++
	}
}

func (f *filler) read() {
	name := "topic " + strconv.Itoa(f.random.IntN(30))
	used := f.store.memory.used.Load()
	page := f.store.Read(broker.Query{Topic: name})
	require.NotEmpty(f.t, page.Position.Epoch)
	require.LessOrEqual(f.t, f.store.memory.used.Load(), used, "reading needs no memory")
	if page.Position.Offset == 0 {
		f.counts["topic without publications"]++
	}
}

func (f *filler) storeValue() {
	key := "value " + strconv.Itoa(f.random.IntN(20))
	before := f.store.LoadValue(key)
	data := make([]byte, f.random.IntN(1000))
	lifetime := time.Duration(f.random.Int64N(int64(time.Hour)))
	if f.random.IntN(5) == 0 {
		lifetime = 0
	}
	_, err := f.store.StoreValue(key, data, before.Version, lifetime)
	switch {
	case lifetime == 0:
		require.NoError(f.t, err)
		require.Zero(f.t, f.store.LoadValue(key))
		f.counts["value deleted"]++
	case err == nil:
		require.Len(f.t, f.store.LoadValue(key).Data, len(data))
		f.counts["value"]++
	default:
		require.Equal(f.t, errors.ResourceExhausted, errors.CodeOf(err), err)
		require.Equal(f.t, before, f.store.LoadValue(key))
		f.counts["value rejected"]++
	}
}

func TestStore_ConcurrentCallsStayBelowMaximum(t *testing.T) {
	s := Store{MaxBytes: 200_000}
	var stored [4]atomic.Uint64
	var rejected atomic.Int64
	var last [4]uint64 // offset published last; guarded by the topic's lock
	stop := make(chan struct{})
	var observer, users sync.WaitGroup
	observer.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				assert.LessOrEqual(t, s.memory.used.Load(), s.MaxBytes)
				runtime.Gosched()
			}
		}
	})
	for user := range 8 {
		users.Go(func() {
			random := rand.New(rand.NewPCG(uint64(user), 3)) //nolint:gosec // never negative
			for i := range 3000 {
				n := random.IntN(len(stored))
				a := broker.Append{Topic: strconv.Itoa(n), Retention: broker.Retention{Messages: 100 + random.IntN(200)}, Packet: make([]byte, random.IntN(500))}
				if i%10 == 0 {
					a.StateKey, a.IdempotencyKey = strconv.Itoa(random.IntN(50)), strconv.Itoa(user*10_000+i)
				}
				_, err := s.Append(a, func(_ string, p broker.Publication) {
					assert.Equal(t, last[n]+1, p.Position.Offset)
					last[n] = p.Position.Offset
				})
				if err == nil {
					stored[n].Add(1)
				} else if assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), err) {
					rejected.Add(1)
				}
				if i%20 == 0 {
					_, _ = s.StoreValue(fmt.Sprint(user, i), make([]byte, random.IntN(500)), 0, time.Millisecond)
				}
			}
		})
	}
	users.Wait()
	close(stop)
	observer.Wait()
	assert.Equal(t, s.count(), s.memory.used.Load())
	assert.Equal(t, s.countValues(), s.valueMemory.used.Load())
	assert.Positive(t, rejected.Load())
	for n := range stored {
		page := s.Read(broker.Query{Topic: strconv.Itoa(n)})
		assert.Equal(t, stored[n].Load(), page.Position.Offset)
	}
}

func TestMemory_ConcurrentReservations(t *testing.T) {
	const maximum = 1
	var m memory
	var reserved, exceeded atomic.Int64
	var users sync.WaitGroup
	for range 4 {
		users.Go(func() {
			for range 200_000 {
				if !m.reserve(1, maximum) {
					continue
				}
				if reserved.Add(1) > maximum {
					exceeded.Add(1)
				}
				reserved.Add(-1)
				m.release(1)
			}
		})
	}
	users.Wait()
	assert.Zero(t, exceeded.Load())
	assert.Zero(t, m.used.Load())
}
