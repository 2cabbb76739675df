package rules_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/rules"
)

func TestBackoff_DoublesUpToMaxWithJitter(t *testing.T) {
	for range 100 {
		b := rules.Backoff{Min: 10 * time.Millisecond, Max: 35 * time.Millisecond}
		for range 2 {
			for _, longest := range []time.Duration{10, 20, 35, 35} {
				longest *= time.Millisecond
				wait := b.Next()
				assert.LessOrEqual(t, wait, longest)
				assert.GreaterOrEqual(t, wait, longest/2)
			}
			b.Reset()
		}
	}
	first := map[time.Duration]bool{}
	for range 100 {
		first[new(rules.Backoff).Next()] = true
	}
	assert.Greater(t, len(first), 50, "callers that fail together wait for different times")
}

func TestBackoff_OfAStoreThatStaysAwayIsBounded(t *testing.T) {
	var b rules.Backoff
	for range 1000 {
		b.Next()
	}
	wait := b.Next()
	assert.LessOrEqual(t, wait, 2*time.Second)
	assert.GreaterOrEqual(t, wait, time.Second)
}

func TestBackoff_WaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b, begin := rules.Backoff{Min: time.Minute, Max: time.Minute}, time.Now()
		assert.ErrorIs(t, b.Wait(ctx), context.DeadlineExceeded)
		assert.Equal(t, time.Second, time.Since(begin))
	})
}
