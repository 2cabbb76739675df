package rules_test

import (
	"testing"
	"time"

	"github.com/penstock-go/penstock/internal/rules"
	"github.com/stretchr/testify/assert"
)

func TestOf_EveryCodeHasOneRule(t *testing.T) {
	seen := map[int]bool{}
	for _, r := range rules.CloseRules {
		for _, code := range r.Codes {
			assert.False(t, seen[code], code)
			seen[code] = true
			assert.Equal(t, r.Cause, rules.CloseRuleOf(code).Cause)
		}
	}
	assert.Equal(t, "defined by the application", rules.CloseRuleOf(4711).Cause)
}

func TestDelay_AddsBackoffToWhatTheServerDemands(t *testing.T) {
	const none, ms = 0, time.Millisecond
	for _, test := range []struct {
		code         int
		demanded     time.Duration
		attempt      int
		least, below time.Duration
	}{
		{1006, none, 0, 100 * ms, 600 * ms},
		{1006, none, 3, 100 * ms, 4100 * ms},
		{1006, none, 1000, 100 * ms, 20100 * ms},
		{1012, none, 0, 100 * ms, 10600 * ms},
		{1012, none, 1, 100 * ms, 1100 * ms},
		{1012, 812 * ms, 0, 912 * ms, 1412 * ms},
		{1012, 1 * ms, 5, 101 * ms, 16101 * ms},
		{1013, none, 0, 100 * ms, 5100 * ms},
		{1013, none, 1, 100 * ms, 10100 * ms},
		{4429, 7000 * ms, 0, 7100 * ms, 7600 * ms},
		{4503, none, 0, 100 * ms, 10600 * ms},
		{4711, none, 0, 100 * ms, 600 * ms},
	} {
		delay := func(random float64) time.Duration {
			return rules.CloseRuleOf(test.code).Delay(test.demanded, test.attempt, rules.MinBackoff, rules.MaxBackoff, func() float64 { return random })
		}
		assert.Equal(t, test.least, delay(0), "%+v", test)
		assert.Equal(t, test.below, delay(1), "%+v", test)
	}
}
