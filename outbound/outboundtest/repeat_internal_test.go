package outboundtest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
)

func TestCase_IsRepeatedAfterDelays(t *testing.T) {
	broken := errors.New("the rule is broken")
	for name, tt := range map[string]struct {
		delay    time.Duration // of each attempt
		failures int           // how many attempts fail
		attempts int
		want     error
	}{
		"passes":                       {delay: maxDelay, attempts: 1},
		"fails without a delay":        {delay: maxDelay - 1, failures: 1, attempts: 1, want: broken},
		"fails after a delay":          {delay: maxDelay, failures: 2, attempts: 3},
		"fails after delays each time": {delay: maxDelay, failures: maxAttempts, attempts: maxAttempts, want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				c := Case{check: func(h Harness) error {
					attempts++
					bench{slept: h.slept}.sleep(lease) // is no delay
					time.Sleep(tt.delay)
					if attempts <= tt.failures {
						return broken
					}
					return nil
				}}
				assert.Equal(t, tt.want, c.repeat(Harness{}, t.Logf))
				assert.Equal(t, tt.attempts, attempts)
			})
		})
	}
}
