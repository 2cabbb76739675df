package testscale

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestParse_SelectsTier(t *testing.T) {
	for value, want := range map[string]tier{
		"":      {},
		"full":  {full: true},
		"1h30m": {full: true, soak: 90 * time.Minute},
	} {
		got, err := parse(value)
		assert.NoError(t, err, value)
		assert.Equal(t, want, got, value)
	}
	for _, value := range []string{"quick", "Full", "10", "0s", "-1h", " full"} {
		_, err := parse(value)
		assert.ErrorContains(t, err, `it must be empty, "full", or how long`, value)
	}
}

func TestSample_KeepsOrderAndNumber(t *testing.T) {
	items := []int{1, 2, 3, 4, 5, 6, 7, 8}
	for range 100 {
		sample := Sample(items, Pick(3, len(items)))
		assert.Len(t, sample, Pick(3, len(items)))
		assert.IsIncreasing(t, sample)
	}
	assert.Equal(t, items, Sample(items, 9))
}
