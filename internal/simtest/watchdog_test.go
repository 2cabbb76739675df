package simtest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// realTimeLimit returns how long one simulation may take in real time, of which most take a tenth of a second.
func realTimeLimit() time.Duration {
	if raced {
		return 5 * time.Minute
	}
	return time.Minute
}

// endIfHanging ends the process unless the simulation of a plan ends in time. Virtual time stands still while a goroutine waits for a
// mutex or runs without an end, so no timeout inside the bubble can end that. It must be called outside of the bubble.
func endIfHanging(p plan) (stop func()) {
	return watchdog(realTimeLimit(), p, func(report string) {
		fmt.Fprintln(os.Stderr, report)
		os.Exit(2) // nothing else can end it
	})
}

// watchdog calls expired with a report on a goroutine of its own, unless it is stopped in time.
func watchdog(limit time.Duration, p plan, expired func(report string)) (stop func()) {
	timer := time.AfterFunc(limit, func() {
		expired(fmt.Sprintf("FAIL: the simulation of seed %d (%s) has not ended after %v of real time:\n%s\n\nsimulate(t, %s)", p.Seed, p.Mood, limit, stacks(), p))
	})
	return func() { timer.Stop() }
}

// stacks returns the stacks of all goroutines.
func stacks() string {
	for size := 1 << 20; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return string(buf[:n])
		}
	}
}

func TestWatchdog_ReportsADeadlockOnAMutex(t *testing.T) {
	p := plan{Seed: 4711, Mood: calm, Steps: []step{{Do: "cut"}}}
	blocked := func(report string) bool { return strings.Contains(report, "[sync.Mutex.Lock, synctest bubble") }
	report := ""
	for began := time.Now(); !blocked(report) && time.Since(began) < 10*time.Second; {
		var mu sync.Mutex
		mu.Lock()
		stop := watchdog(20*time.Millisecond, p, func(r string) {
			report = r
			mu.Unlock()
		})
		synctest.Test(t, func(*testing.T) {
			mu.Lock() // until the watchdog reports that
			defer mu.Unlock()
		})
		stop()
	}
	assert.Contains(t, report, "seed 4711 (calm)")
	assert.Contains(t, report, `{Do: "cut"}`)
	assert.True(t, blocked(report), report)
}

func TestWatchdog_IsSilentAboutSimulationsThatEnd(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		stop := watchdog(time.Minute, plan{}, func(string) { t.Error("the watchdog has reported a simulation that has ended") })
		stop()
		time.Sleep(time.Hour)
	})
}
