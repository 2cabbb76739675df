package internal_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/pathqueue"
	"github.com/penstock-go/penstock/internal/testscale"
)

// An item counts as many bytes as its size.
type item struct{ number, size int }

// A trip is a round trip.
type trip struct {
	path    string
	batches map[int][]int // the numbers of items, by partition
}

// servers record round trips, each of which takes a second.
type servers struct {
	t *testing.T
	*pathqueue.Queue[item]

	mu       sync.Mutex
	paths    map[int]string // "" by default
	pause    time.Duration
	trips    []trip
	inFlight map[int]bool // partitions
}

func newServers(t *testing.T, roundTrips int) *servers {
	s := &servers{t: t, paths: map[int]string{}, inFlight: map[int]bool{}}
	s.Queue = pathqueue.New(pathqueue.Config[item]{
		Path: s.pathOf, Send: s.send, RoundTrips: roundTrips,
		Size:         func(i item) int { return i.size },
		MaxBatch:     pathqueue.Amount{Items: 10, Bytes: 100},
		MaxRoundTrip: pathqueue.Amount{Items: 15, Bytes: 150},
	})
	return s
}

func (s *servers) pathOf(partition int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paths[partition]
}

func (s *servers) move(partition int, path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paths[partition] = path
}

func (s *servers) send(path string, batches []pathqueue.Batch[item]) (pause time.Duration) {
	s.mu.Lock()
	sent := trip{path, map[int][]int{}}
	for _, b := range batches {
		assert.False(s.t, s.inFlight[b.Partition], "two batches of partition %d", b.Partition)
		assert.NotEmpty(s.t, b.Items)
		s.inFlight[b.Partition] = true
		for _, i := range b.Items {
			sent.batches[b.Partition] = append(sent.batches[b.Partition], i.number)
		}
	}
	s.trips = append(s.trips, sent)
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range batches {
		s.inFlight[b.Partition] = false
	}
	return s.pause
}

// add adds items of one byte.
func (s *servers) add(partition int, numbers ...int) {
	for _, n := range numbers {
		assert.True(s.t, s.Add(partition, item{n, 1}))
	}
}

// sent returns what was sent in the round trips since the last call.
func (s *servers) sent() []trip {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	trips := s.trips
	s.trips = nil
	return trips
}

func numbers(items []item) (all []int) {
	for _, i := range items {
		all = append(all, i.number)
	}
	return all
}

func TestQueue_ClosedQueueRejectsItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 1)
		s.add(0, 1)
		synctest.Wait() // it is in flight
		s.add(0, 2, 3)
		assert.Equal(t, []int{2, 3}, numbers(s.Close()))
		assert.False(t, s.Add(0, item{4, 1}))
		assert.Empty(t, s.Close())
		began := time.Now()
		s.Wait(t.Context())
		assert.Equal(t, time.Second, time.Since(began))
		assert.Equal(t, []trip{{"", map[int][]int{0: {1}}}}, s.sent())
		assert.Zero(t, s.Bytes(0))
	})
}

func TestQueue_WaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 1)
		s.Wait(t.Context()) // nothing waits
		s.add(0, 1)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		s.Wait(ctx)
		assert.Equal(t, time.Millisecond, time.Since(began))
		s.Wait(t.Context())
		assert.Equal(t, time.Second, time.Since(began))
	})
}

// TestQueue_PauseDelaysThePathAlone lets the server of one path fail.
func TestQueue_PauseDelaysThePathAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 1)
		s.pause = time.Hour
		s.move(1, "other")
		s.add(0, 1)
		s.Wait(t.Context())
		s.add(0, 2)
		s.add(1, 3)
		assert.Equal(t, []trip{{"", map[int][]int{0: {1}}}, {"other", map[int][]int{1: {3}}}}, s.sent())
		time.Sleep(time.Hour)
		assert.Equal(t, []trip{{"", map[int][]int{0: {2}}}}, s.sent())
		s.Close() // ends the pauses: the test would wait for their goroutines
		began := time.Now()
		s.Wait(t.Context())
		synctest.Wait()
		assert.Equal(t, time.Second, time.Since(began))
	})
}

func TestQueue_RoundTripsOfAPathHaveOtherPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 2)
		s.add(0, 1)
		s.add(1, 2)
		assert.ElementsMatch(t, []trip{{"", map[int][]int{0: {1}}}, {"", map[int][]int{1: {2}}}}, s.sent())
		s.add(0, 3)
		s.add(2, 4, 5)
		s.add(3, 6)
		assert.Empty(t, s.sent(), "two are in flight")
		assert.Equal(t, 4, s.Bytes(2))
		assert.Equal(t, 2, s.Bytes(1))
		s.Wait(t.Context())
		assert.ElementsMatch(t, []trip{{"", map[int][]int{0: {3}, 2: {4, 5}}}, {"", map[int][]int{3: {6}}}}, s.sent())
	})
}

func TestQueue_BatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 1)
		s.add(0, 0)
		synctest.Wait()
		for n := range 14 {
			s.add(0, n)
			s.add(1, n)
		}
		require.True(t, s.Add(2, item{0, 90}))
		require.True(t, s.Add(2, item{1, 11})) // exceeds a batch together with the one before
		require.True(t, s.Add(3, item{0, 1000}))
		require.True(t, s.Add(3, item{1, 1}))
		s.add(4, 0)
		s.sent()
		var lengths []map[int]int
		for range 5 {
			time.Sleep(time.Second)
			for _, trip := range s.sent() {
				n := map[int]int{}
				for partition, items := range trip.batches {
					n[partition] = len(items)
				}
				lengths = append(lengths, n)
			}
		}
		assert.Equal(t, []map[int]int{{1: 10, 2: 1, 3: 1}, {4: 1, 0: 10, 1: 4}, {2: 1, 3: 1, 0: 4}}, lengths)
	})
}

// TestQueue_DiscardsWhatWaits keeps what is in flight.
func TestQueue_DiscardsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 1)
		s.move(1, "other")
		s.add(0, 0)
		s.add(1, 10)
		synctest.Wait() // they are in flight
		s.add(0, 1, 2)
		s.add(1, 11, 12)
		s.add(2, 20, 21, 22)
		assert.ElementsMatch(t, []int{11, 12}, numbers(s.DiscardPath("other")))
		assert.Equal(t, 1, s.Bytes(1), "in flight")
		s.move(0, "other") // for what follows the batch in flight
		assert.ElementsMatch(t, []int{1, 2}, numbers(s.DiscardPath("other")))
		assert.ElementsMatch(t, []int{20, 21, 22}, numbers(s.Discard()))
		assert.Zero(t, s.Waiting())
		s.add(2, 23)
		s.Wait(t.Context())
		trips := s.sent()
		assert.Equal(t, trip{"", map[int][]int{2: {23}}}, trips[len(trips)-1])
		assert.Len(t, trips, 3)
	})
}

// TestQueue_PartitionBelongsToASender moves a partition of which items wait, while its sender
// pauses.
func TestQueue_PartitionBelongsToASender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 1)
		s.pause = time.Hour
		s.add(0, 1)
		synctest.Wait()
		s.add(0, 2)
		time.Sleep(2 * time.Second)
		s.move(0, "other")
		assert.Empty(t, s.Path(0))
		assert.Equal(t, 1, s.Bytes(0))
		s.add(0, 3)
		assert.Len(t, s.sent(), 1)
		s.Wait(t.Context())
		assert.Equal(t, []trip{{"", map[int][]int{0: {2, 3}}}}, s.sent())
		s.Close()
	})
}

// TestQueue_FreesWhatWasSent looks at the memory of a batch, behind which another item waits.
func TestQueue_FreesWhatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first []item
		q := pathqueue.New(pathqueue.Config[item]{
			Path: func(int) string { return "" },
			Send: func(_ string, batches []pathqueue.Batch[item]) time.Duration {
				if first == nil {
					first = batches[0].Items
				}
				time.Sleep(time.Second)
				return 0
			},
			Size: func(item) int { return 1 }, RoundTrips: 1,
			MaxBatch: pathqueue.Amount{Items: 1, Bytes: 1}, MaxRoundTrip: pathqueue.Amount{Items: 1, Bytes: 1},
		})
		q.Add(0, item{1, 1})
		synctest.Wait()
		q.Add(0, item{2, 1})
		q.Wait(t.Context())
		assert.Equal(t, []item{{}}, first)
	})
}

// TestQueue_PathIsThatOfTheNextItem moves partitions that wait, and that are in flight.
func TestQueue_PathIsThatOfTheNextItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 1)
		s.add(0, 1)
		synctest.Wait()
		s.add(1, 2) // waits for the round trip
		s.move(0, "other")
		s.move(1, "other")
		s.add(0, 3)
		assert.Equal(t, "other", s.Path(0))
		assert.Empty(t, s.Path(1), "it belongs to the sender of its first path")
		s.Wait(t.Context())
		assert.Equal(t, "other", s.Path(1))
		assert.ElementsMatch(t, []trip{{"", map[int][]int{0: {1}}}, {"", map[int][]int{1: {2}}}, {"other", map[int][]int{0: {3}}}}, s.sent())
	})
}

// TestQueue_KeepsOrderWhilePathsChange adds items at random times, and discards some.
func TestQueue_KeepsOrderWhilePathsChange(t *testing.T) {
	for seed := range testscale.Tiers[uint64](20, 60, 200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
			s := newServers(t, 1+random.IntN(2))
			const partitions = 5
			added, discarded := map[int][]int{}, map[int]bool{}
			discard := func(items []item) {
				for _, i := range items {
					discarded[i.number] = true
				}
			}
			for n := range 400 {
				partition := random.IntN(partitions)
				switch random.IntN(12) {
				case 0:
					s.move(partition, fmt.Sprint(random.IntN(3)))
				case 1:
					time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
				case 2:
					discard(s.DiscardPath(fmt.Sprint(random.IntN(3))))
				case 3:
					if random.IntN(10) == 0 {
						discard(s.Discard())
					}
				default:
					s.add(partition, n)
					added[partition] = append(added[partition], n)
				}
			}
			s.Wait(t.Context())
			sent := map[int][]int{}
			for _, trip := range s.sent() {
				for partition, items := range trip.batches {
					sent[partition] = append(sent[partition], items...)
				}
			}
			for partition, want := range added {
				want = slices.DeleteFunc(want, func(n int) bool { return discarded[n] })
				require.Equal(t, want, sent[partition], "seed %d, partition %d", seed, partition)
				require.Zero(t, s.Bytes(partition))
			}
		})
	}
}
