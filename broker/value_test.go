package broker_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
)

func FuzzNewPatch(f *testing.F) {
	for _, pair := range [][2]string{{"", ""}, {"", "a"}, {"a", ""}, {"aa", "a"}, {"a", "aa"}, {"one two", "one three"}, {"abab", "ab"}} {
		f.Add([]byte(pair[0]), []byte(pair[1]))
	}
	f.Fuzz(func(t *testing.T, from, to []byte) {
		p := broker.NewPatch(from, to)
		changed, ok := p.Apply(from)
		assert.True(t, ok)
		assert.True(t, bytes.Equal(to, changed))
		if bytes.Equal(from, to) {
			assert.Empty(t, p.Data)
			assert.Zero(t, p.Remove)
		}
	})
}

func TestPatch_ApplyRejectsShortData(t *testing.T) {
	for _, p := range []broker.Patch{{Offset: 5}, {Remove: 5}, {Offset: 4, Remove: 1}, {Offset: -1}, {Remove: -1}} {
		_, ok := p.Apply([]byte("data"))
		assert.False(t, ok, "%+v", p)
	}
}
