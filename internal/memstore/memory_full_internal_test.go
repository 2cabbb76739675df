package memstore

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// TestStore_RecoversWhenContentHasExpired fills a store with different contents.
func TestStore_RecoversWhenContentHasExpired(t *testing.T) {
	const many = 100_000
	r := broker.Retention{Messages: many, Age: time.Minute}
	appendTo := func(s *Store, topic string) error {
		_, err := s.Append(broker.Append{Topic: topic, Retention: r, Packet: make([]byte, 200)}, discard)
		return err
	}
	for _, tt := range []struct {
		name string
		fill func(s *Store, i int) error
		wait time.Duration
	}{
		{"publications of another topic", func(s *Store, _ int) error { return appendTo(s, "old") }, time.Minute},
		{"publications of many topics", func(s *Store, i int) error { return appendTo(s, strconv.Itoa(i%300)) }, time.Minute},
		{"state", func(s *Store, i int) error {
			_, err := s.Append(broker.Append{Topic: "state", Retention: r, StateKey: strconv.Itoa(i)}, discard)
			return err
		}, time.Minute},
		{"idempotency keys", func(s *Store, i int) error {
			_, err := s.Append(broker.Append{Topic: "keys", Retention: r, IdempotencyKey: strconv.Itoa(i)}, discard)
			return err
		}, broker.IdempotencyTime},
		{"topics", func(s *Store, i int) error {
			_, err := s.Append(broker.Append{Topic: strconv.Itoa(i), Retention: r}, discard)
			return err
		}, metadataAge + time.Minute},
		{"values", func(s *Store, i int) error {
			_, err := s.StoreValue(strconv.Itoa(i), nil, 0, time.Minute)
			return err
		}, time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := Store{MaxBytes: 1 << 20}
				require.NoError(t, appendTo(&s, "own"))
				var err error
				for i := 0; err == nil && i < many; i++ {
					err = tt.fill(&s, i)
				}
				require.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), err)
				err = nil
				for i := 0; err == nil && i < many && tt.name != "values"; i++ { // the own topic fills what is left
					err = appendTo(&s, "own")
				}
				if tt.name != "values" {
					require.ErrorContains(t, err, "not stored")
				}
				time.Sleep(tt.wait + time.Second)
				succeedsSoon(t, func() error {
					_, err := s.StoreValue("new", make([]byte, 1000), 0, time.Hour)
					return err
				})
				failed := 0
				for range 2000 {
					if appendTo(&s, "own") != nil {
						failed++
					}
				}
				assert.LessOrEqual(t, failed, 10, "what has expired is freed, a part of it in each call")
				assert.Equal(t, s.count(), s.memory.used.Load())
			})
		})
	}
}

// succeedsSoon makes the first calls after contents have expired, each of which frees a part of them.
func succeedsSoon(t *testing.T, call func() error) {
	var err error
	for range 10 {
		if err = call(); err == nil {
			return
		}
	}
	require.NoError(t, err)
}

// TestStore_ValuesAndHistoriesDoNotFillTheMemoryOfEachOther fills one, and then the other.
func TestStore_ValuesAndHistoriesDoNotFillTheMemoryOfEachOther(t *testing.T) {
	publish := func(s *Store, i int) error {
		_, err := s.Append(broker.Append{Topic: strconv.Itoa(i), Packet: make([]byte, 100)}, discard)
		return err
	}
	store := func(s *Store, i int) error {
		_, err := s.StoreValue(strconv.Itoa(i), make([]byte, 100), 0, time.Minute)
		return err
	}
	fill := func(s *Store, add func(*Store, int) error) (added int) {
		for ; added < 10_000; added++ {
			if err := add(s, added); err != nil {
				require.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), err)
				return added
			}
		}
		require.Fail(t, "the memory is not bounded")
		return 0
	}
	one, two := &Store{MaxBytes: 100_000}, &Store{MaxBytes: 100_000}
	values, topics := fill(one, store), fill(one, publish)
	assert.Equal(t, topics, fill(two, publish))
	assert.Equal(t, values, fill(two, store))
}

// TestStore_FullStoreAcceptsReplacements publishes on topics whose retention removes as much as is
// added.
func TestStore_FullStoreAcceptsReplacements(t *testing.T) {
	s := Store{MaxBytes: 100_000}
	small := broker.Append{Topic: "small", Retention: broker.Retention{Messages: 5}, Packet: make([]byte, 100), StateKey: "key"}
	for range 5 {
		_, err := s.Append(small, discard)
		require.NoError(t, err)
	}
	version, err := s.StoreValue("value", make([]byte, 100), 0, time.Hour)
	require.NoError(t, err)
	large := broker.Append{Topic: "large", Retention: broker.Retention{Messages: 1000}, Packet: make([]byte, 1000)}
	for i := 0; err == nil && i < 1000; i++ {
		_, err = s.Append(large, discard)
	}
	require.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), err)
	before := s.Read(broker.Query{Topic: "large", Limit: 1000})
	for range 100 {
		_, err = s.Append(small, discard)
		require.NoError(t, err)
		version, err = s.StoreValue("value", make([]byte, 100), version, time.Hour)
		require.NoError(t, err)
		_, err = s.Append(large, discard)
		require.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), err)
	}
	after := s.Read(broker.Query{Topic: "large", Limit: 1000})
	assert.Equal(t, before, after)
}

// TestStore_TooLargePacketIsNotKept, however many publications it displaces.
func TestStore_TooLargePacketIsNotKept(t *testing.T) {
	for _, stored := range []int{0, 1, maxRemoved, 2 * maxRemoved} {
		var s Store
		r := broker.Retention{Messages: 1000, Bytes: 10_000}
		for range stored {
			_, err := s.Append(broker.Append{Topic: "news", Retention: r, Packet: make([]byte, 1)}, discard)
			require.NoError(t, err)
		}
		_, err := s.Append(broker.Append{Topic: "news", Retention: r, Packet: make([]byte, 10_001)}, discard)
		require.NoError(t, err)
		assert.Empty(t, s.Read(broker.Query{Topic: "news", Retention: r, Limit: 1000}).Publications, stored)
	}
}

func TestStore_DefaultMaximum(t *testing.T) {
	var s Store
	r := broker.Retention{Messages: 10}
	_, err := s.Append(broker.Append{Topic: "news", Retention: r, Packet: make([]byte, DefaultMaxBytes)}, discard)
	assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), err)
	_, err = s.Append(broker.Append{Topic: "news", Retention: r, Packet: make([]byte, DefaultMaxBytes-10_000)}, discard)
	require.NoError(t, err)
}
