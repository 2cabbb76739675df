package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func FuzzDecodeMessage(f *testing.F) {
	for _, m := range []nodeMessage{
		{from: "a", kind: kindPacket, epoch: 7, number: 300, packet: []byte("hello")},
		{from: "a", kind: kindGap, epoch: 1 << 31, previousBeat: 9},
		{from: "a", kind: kindEnd, number: 5},
		{from: "", kind: kindHeartbeat},
		{from: "b", kind: kindLeave},
	} {
		f.Add(m.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := decodeMessage(b)
		if !ok || !m.numbered() {
			return
		}
		again, ok := decodeMessage(m.encode())
		require.True(t, ok)
		assert.Equal(t, m, again)
	})
}

// TestNodeMessage_Bytes fixes the bytes that nodes of different versions exchange.
func TestNodeMessage_Bytes(t *testing.T) {
	for want, m := range map[string]nodeMessage{
		"\x01\x02ab\x00\x00\x00\x07\xac\x02\x09hello": {from: "ab", kind: kindPacket, epoch: 7, number: 300, previousBeat: 9, packet: []byte("hello")},
		"\x02\x01a\x80\x00\x00\x00\x00\x00\x05":       {from: "a", kind: kindGap, epoch: 1 << 31, packet: []byte{5}},
		"\x03\x01a\x07v1":                             {from: "a", kind: kindHeartbeat, packet: []byte("\x07v1")},
		"\x04\x01a":                                   {from: "a", kind: kindLeave},
		"\x05\x01a\x00\x00\x00\x01\x02\x01":           {from: "a", kind: kindEnd, epoch: 1, number: 2, previousBeat: 1},
		"\x06\x01ahi":                                 {from: "a", kind: kindPresence, packet: []byte("hi")},
		"\x07\x01a\x05":                               {from: "a", kind: kindProbe, packet: []byte{5}},
	} {
		assert.Equal(t, want, string(m.encode()))
	}
}

func TestDecodeMessage_RejectsForeignPayload(t *testing.T) {
	for _, head := range [][]byte{{0xff, 0xfe}, {kindPacket, 0xff}, {kindHeartbeat, 0xff}} { // UTF-16 begins like the first
		_, ok := decodeMessage(append(head, make([]byte, 254)...))
		assert.False(t, ok, "%x", head)
	}
}
