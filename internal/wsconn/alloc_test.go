//go:build !race

package wsconn_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/wsconn"
)

// The race detector makes pools forget at random.

func TestConn_WritingDoesNotAllocate(t *testing.T) {
	client, c, _ := queue(t, wsconn.Disconnect, 1024, 1<<20)
	read := make(chan struct{})
	var got atomic.Int64
	go func() {
		defer close(read)
		buf := make([]byte, 1<<16)
		for {
			n, err := client.r.Read(buf)
			if err != nil {
				return
			}
			got.Add(int64(n))
		}
	}()
	shared := wsconn.NewFrame()
	shared.WriteString("for many")
	shared.Seal()
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		for range 4 {
			f := wsconn.NewFrame()
			f.WriteString("for one")
			f.Seal()
			_ = c.Queue(f)
		}
		shared.Retain()
		_ = c.Queue(shared)
		c.Flush()
	}))
	c.Release()
	<-read
	assert.EqualValues(t, 1001*(4*(2+7)+2+8), got.Load())
}
