package memstore

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
)

func discard(string, broker.Publication) {}

// use makes calls that concern one topic.
func (s *Store) use(name string, calls int) {
	for range calls {
		s.Read(broker.Query{Topic: name})
	}
}

func TestStore_FreesWhatHasExpiredInOtherTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Store
		r := broker.Retention{Messages: 1000, Age: 10 * time.Minute}
		for i := range 100 {
			for n := range 10 {
				_, _ = s.Append(broker.Append{
					Topic: strconv.Itoa(i), Retention: r, Packet: []byte("12345"),
					IdempotencyKey: strconv.Itoa(n), StateKey: strconv.Itoa(n),
				}, discard)
			}
		}
		time.Sleep(r.Age + time.Second)
		s.use("0", 50)
		for name, topic := range s.topics {
			assert.Zero(t, topic.stored.len(), name)
			assert.Zero(t, topic.bytes, name)
			assert.Empty(t, topic.state.keys, name)
			assert.Nil(t, topic.state.oldest, name)
			assert.Empty(t, topic.keys.offsets, name)
			assert.LessOrEqual(t, len(topic.stored.buffer), minRing, name)
		}
		time.Sleep(metadataAge + r.Age)
		s.use("0", 100)
		assert.Len(t, s.topics, 1)
		assert.Len(t, s.list, 1)
		assert.Len(t, s.first.forgotten, 99)
	})
}

func TestStore_RemovesABoundedNumberOfPublicationsPerCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Store
		for range 1000 {
			_, _ = s.Append(broker.Append{Topic: "news", Retention: broker.Retention{Messages: 1000}}, discard)
		}
		_, _ = s.Append(broker.Append{Topic: "news", Retention: broker.Retention{Messages: 10}}, discard)
		assert.Equal(t, 1001-maxRemoved, s.topics["news"].stored.len())
		for range 10 {
			_, _ = s.Append(broker.Append{Topic: "news", Retention: broker.Retention{Messages: 10}}, discard)
		}
		assert.Equal(t, 10, s.topics["news"].stored.len())

		for range 1000 {
			_, _ = s.Append(broker.Append{Topic: "news", Retention: broker.Retention{Messages: 1000, Age: time.Hour}}, discard)
		}
		time.Sleep(2 * time.Hour)
		page := s.Read(broker.Query{Topic: "news", Retention: broker.Retention{Age: time.Hour}, Limit: 1000})
		assert.Empty(t, page.Publications, "expired publications that have not been removed are not returned")
		assert.Equal(t, uint64(2011), page.Position.Offset)
	})
}

func TestStore_TopicInUseIsNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Store
		_, err := s.Append(broker.Append{Topic: "news"}, discard)
		require.NoError(t, err)
		topic := s.topics["news"]
		topic.mu.Lock()
		time.Sleep(3 * metadataAge)
		s.use("other", 3)
		assert.Contains(t, s.topics, "news")
		topic.mu.Unlock()
		s.use("other", 3)
		assert.NotContains(t, s.topics, "news")
	})
}

func TestRing_KeepsOrderWhileItGrowsAndShrinks(t *testing.T) {
	var r ring[int]
	in, out := 0, 0
	for _, size := range []int{3, 100, 5, 64, 0, 9, 1} {
		for r.len() < size {
			r.push(in)
			in++
		}
		for r.len() > size {
			v, _ := r.pop()
			require.Equal(t, out, v)
			out++
		}
		for i := range r.len() {
			require.Equal(t, out+i, *r.at(i))
		}
		assert.LessOrEqual(t, len(r.buffer), max(4*size, minRing))
	}
}
