package netpoll_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/netpoll"
)

func TestClassFor_ReturnsSmallestSufficientClass(t *testing.T) {
	for n, want := range map[int]int{0: 512, 512: 512, 513: 4 << 10, 4097: 16 << 10, 16385: 64 << 10, netpoll.MaxBufferBytes: 64 << 10} {
		b := netpoll.NewBuffer(netpoll.ClassFor(n))
		assert.Empty(t, b.Bytes)
		assert.Equal(t, want, cap(b.Bytes), "%d bytes", n)
		b.Release()
	}
}

func TestBuffer_GrowKeepsContent(t *testing.T) {
	b := netpoll.NewBuffer(0)
	var want []byte
	for cap(b.Bytes) < 512<<10 {
		added := bytes.Repeat([]byte{byte(len(want) % 251)}, cap(b.Bytes)-len(b.Bytes))
		b.Bytes, want = append(b.Bytes, added...), append(want, added...)
		before := cap(b.Bytes)
		b = b.Grow()
		assert.Greater(t, cap(b.Bytes), before)
		assert.Equal(t, want, b.Bytes)
	}
	b.Release() // it belongs to no pool
	assert.Empty(t, netpoll.NewBuffer(3).Bytes)
}
