package sampling

import (
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSampler_MemoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Sampler[int]
		s.Init(1, time.Second)
		for range 3 {
			passed := 0
			for key := range 2 * maxKeys {
				for range 2 {
					if s.Passes(key) {
						passed++
					}
				}
			}
			assert.Equal(t, maxKeys, passed)
			assert.Len(t, s.current, maxKeys)
			assert.LessOrEqual(t, len(s.previous), maxKeys)
			time.Sleep(time.Second)
		}
	})
}

func TestLines_NoneIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s Lines[string, string]
		var mu sync.Mutex
		counts := map[string]int64{}
		s.Init(2, time.Second, func(line string, suppressed int64) {
			mu.Lock()
			defer mu.Unlock()
			counts[line] += 1 + suppressed
		})
		written := func() map[string]int64 {
			mu.Lock()
			defer mu.Unlock()
			return maps.Clone(counts)
		}
		for range 10 {
			s.Add("a", "line", 1)
		}
		s.Add("b", "other", 3)
		assert.Equal(t, map[string]int64{"line": 2, "other": 3}, written())
		time.Sleep(2 * time.Second)
		assert.EqualValues(t, 10, written()["line"])
	})
}
