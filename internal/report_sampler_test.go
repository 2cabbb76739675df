package internal_test

import (
	"maps"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/report"
)

func TestSampler_KeysAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxKeys = 4096
		passes := newCounter()
		for range 3 {
			passed := 0
			for key := range 2 * maxKeys {
				for range 2 {
					if _, ok := passes(strconv.Itoa(key)); ok {
						passed++
					}
				}
			}
			assert.Equal(t, maxKeys, passed)
			time.Sleep(time.Second)
		}
	})
}

func TestLines_NoneIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s report.Lines[string, string]
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
