package inspect

import (
	"runtime/metrics"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router/observe"
)

// TestSeries_KeepsFifteenMinutes counts one more message in each step than in the one before, and reads all samples,
// then those after a number.
func TestSeries_KeepsFifteenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s series
		time.Sleep(1234 * time.Millisecond) // samples are taken at multiples of a step nevertheless
		s.start()
		defer s.end(t.Context())
		assert.Empty(t, s.after(0).Columns["conns"])
		time.Sleep(sampleStep - 1234*time.Millisecond)
		synctest.Wait()
		first := s.after(0)
		assert.Equal(t, time.Now().UnixNano()/int64(sampleStep), first.Number)
		assert.Len(t, first.Columns["conns"], 1)
		for step := range sampleCount + 20 {
			for range step {
				s.observe(observe.Event{Kind: observe.Completed, Type: "SAY"})
			}
			s.observe(observe.Event{Kind: observe.Opened})
			time.Sleep(sampleStep)
			synctest.Wait()
		}
		all := s.after(0)
		assert.Equal(t, first.Number+sampleCount+20, all.Number)
		require.Len(t, all.Types, 1)
		require.Len(t, all.Types[0].Messages, sampleCount)
		assert.EqualValues(t, 20, all.Types[0].Messages[0])
		assert.EqualValues(t, sampleCount+19, all.Types[0].Messages[sampleCount-1])
		assert.EqualValues(t, sampleCount+20, all.Columns["conns"][sampleCount-1])
		latest := s.after(all.Number - 3)
		for name, column := range all.Columns {
			assert.Len(t, column, sampleCount, name)
			assert.Equal(t, column[sampleCount-3:], latest.Columns[name], name)
		}
		assert.Equal(t, all.Types[0].Messages[sampleCount-3:], latest.Types[0].Messages)
		assert.Empty(t, s.after(all.Number).Types)
	})
}

// TestSeries_CountsEachKindOfEvent has one event of each kind that counts.
func TestSeries_CountsEachKindOfEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s series
		s.start()
		defer s.end(t.Context())
		for _, e := range []observe.Event{
			{Kind: observe.Opened},
			{Kind: observe.Opened},
			{Kind: observe.Closed},
			{Kind: observe.Refused},
			{Kind: observe.Refused, Type: "SAY", Count: 1},
			{Kind: observe.MessagesLost},
			{Kind: observe.MessagesLost, Count: 4},
			{Kind: observe.Dropped, Count: 7},
			{Kind: observe.Written, Count: 9},
			{Kind: observe.Completed},
			{Kind: observe.Handled, Type: "SAY"},
		} {
			s.observe(e)
		}
		time.Sleep(sampleStep)
		synctest.Wait()
		part := s.after(0)
		for name, want := range map[string]int64{"opened": 2, "closed": 1, "conns": 1, "refusedRequests": 1, "lost": 5, "dropped": 7, "sent": 9} {
			assert.Equal(t, []int64{want}, part.Columns[name], name)
		}
		assert.Equal(t, []typePart{{"", []int64{1}, []int64{0}}, {"SAY", []int64{0}, []int64{1}}}, part.Types)
		assert.Positive(t, part.Columns["memory"][0])
		s.end(t.Context())
		time.Sleep(10 * sampleStep)
		assert.Equal(t, part, s.after(0), "it has ended")
	})
}

// TestSeries_StepsWithoutSampleAreZero has a program that did not run for some steps.
func TestSeries_StepsWithoutSampleAreZero(t *testing.T) {
	var g ring
	for n := range int64(2 * sampleCount) {
		g.put(n-1, n, n)
	}
	g.put(2*sampleCount-1, 2*sampleCount+2, 5)
	assert.Equal(t, []int64{2*sampleCount - 1, 0, 0, 5}, g.from(2*sampleCount-1, 2*sampleCount+2))
	g.put(2*sampleCount+2, 9*sampleCount, 7)
	assert.Equal(t, int64(7), slices.Max(g.from(8*sampleCount+1, 9*sampleCount)))
}

// TestSeries_TypesAreBounded has more types than a node counts.
func TestSeries_TypesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s series
		s.start()
		defer s.end(t.Context())
		for n := range maxTypes + 10 {
			for range 2 {
				s.observe(observe.Event{Kind: observe.Completed, Type: strconv.Itoa(n)})
			}
		}
		time.Sleep(sampleStep)
		synctest.Wait()
		part := s.after(0)
		require.Len(t, part.Types, maxTypes+1)
		other := part.Types[slices.IndexFunc(part.Types, func(p typePart) bool { return p.Type == otherTypes })]
		assert.Equal(t, []int64{20}, other.Messages)
		s.mu.Lock() // which an event of such a type does not wait for
		defer s.mu.Unlock()
		s.observe(observe.Event{Kind: observe.Completed, Type: "another"})
		assert.EqualValues(t, 21, (*s.types.Load())[otherTypes].messages.total.Load())
	})
}

func TestSeries_ObserveAllocatesNothing(t *testing.T) {
	var s series
	s.start()
	defer s.end(t.Context())
	e := observe.Event{Kind: observe.Completed, Type: "SAY"}
	s.observe(e)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { s.observe(e) }))
}

// TestLoad_PercentileIsThatOfTheLastTime has latencies that rise.
func TestLoad_PercentileIsThatOfTheLastTime(t *testing.T) {
	var l load
	h := &metrics.Float64Histogram{Buckets: []float64{0, 0.001, 0.01, 0.1}, Counts: []uint64{990, 10, 0}}
	assert.Equal(t, time.Millisecond, l.percentile(h))
	assert.Zero(t, l.percentile(h))
	h.Counts = []uint64{1088, 11, 1}
	assert.Equal(t, 10*time.Millisecond, l.percentile(h))
	h.Counts = []uint64{1088, 11, 2}
	assert.Equal(t, 100*time.Millisecond, l.percentile(h))
}
