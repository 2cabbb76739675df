package internal_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/accesslog"
)

func TestRecent_ForgetsTheOldest(t *testing.T) {
	const maxRecent = 1024
	var r accesslog.Recent[int, string]
	found := func(key int, since uint32) string {
		v, ok, unknown := r.Find(key, since)
		switch {
		case unknown:
			return "unknown"
		case ok:
			return v
		}
		return "none"
	}
	assert.Equal(t, "none", found(1, 0))
	r.Add(1, 5, "one")
	assert.Equal(t, "one", found(1, 4))
	assert.Equal(t, "none", found(1, 5), "it was authenticated afterwards")
	assert.Equal(t, "none", found(2, 4))
	for n := range maxRecent {
		r.Add(10+n, uint32(6+n), "other")
	}
	assert.Equal(t, "unknown", found(1, 4))
	assert.Equal(t, "unknown", found(2, 4))
	assert.Equal(t, "none", found(2, 5+maxRecent), "only newer ones matter")
	assert.Equal(t, "other", found(9+maxRecent, 4+maxRecent))
}

func TestPrecedes_NumbersOverflow(t *testing.T) {
	assert.True(t, accesslog.Precedes(1<<32-2, 1))
	assert.False(t, accesslog.Precedes(1, 1<<32-2))
	assert.False(t, accesslog.Precedes(7, 7))
}
