package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
	"github.com/penstock-go/penstock/limit/limittest"
)

func testWindows[P any](t *testing.T, cases []limittest.WindowCase[P], newLimiter func(P) adapter.Resetter) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.Run(t, limittest.WindowHarness[P]{New: newLimiter, Sleep: time.Sleep, Now: time.Now})
			})
		})
	}
}

func TestSlidingLog_Contract(t *testing.T) {
	testWindows(t, limittest.SlidingLogCases(), func(p limit.WindowPolicy) adapter.Resetter { return memory.NewSlidingLog(p) })
}

func TestSlidingCounter_Contract(t *testing.T) {
	testWindows(t, limittest.SlidingCounterCases(), func(p limit.WindowPolicy) adapter.Resetter { return memory.NewSlidingCounter(p) })
}

func TestQuota_Contract(t *testing.T) {
	testWindows(t, limittest.QuotaCases(), func(p limit.QuotaPolicy) adapter.Resetter { return memory.NewQuota(p) })
}
