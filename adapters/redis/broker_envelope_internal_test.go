package redis

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func FuzzOpen(f *testing.F) {
	for _, e := range []envelope{
		{from: "a", kind: kindPacket, epoch: 7, number: 300, packet: []byte("hello")},
		{from: "a", kind: kindTick, epoch: 1 << 31},
		{from: "", kind: kindAlive},
		{from: "b", kind: kindGoodbye},
	} {
		f.Add(e.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, ok := open(b)
		if !ok || e.kind != kindPacket && e.kind != kindTick {
			return
		}
		again, ok := open(e.append(nil))
		require.True(t, ok)
		assert.Equal(t, e, again)
	})
}

func TestAForeignPayloadIsNoEnvelope(t *testing.T) {
	for _, head := range [][]byte{{0xff, 0xfe}, {kindPacket, 0xff}, {kindAlive, 0xff}} { // UTF-16 begins like the first
		_, ok := open(append(head, make([]byte, 254)...))
		assert.False(t, ok, "%x", head)
	}
}
