package wsconn_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConn_ReadsSlowlyAfterViolation has a client that goes on sending after an invalid frame.
func TestConn_ReadsSlowlyAfterViolation(t *testing.T) {
	t.Parallel()
	opts := options()
	opts.CloseTimeout = 500 * time.Millisecond
	addr, conns := listen(t, opts)
	client := dialRaw(t, addr, "")
	c := <-conns
	ended := make(chan error)
	go func() {
		_, err := next(c)
		c.Release()
		ended <- err
	}()
	client.send(clientFrame(fin|0x3, "reserved opcode"))
	start, written := time.Now(), 0
	for flood := make([]byte, 64<<10); ; {
		n, err := client.Write(flood)
		written += n
		if err != nil {
			break // the server has aborted the connection
		}
	}
	require.Error(t, <-ended)
	const buffered = 16 << 20 // in the kernel, at most
	pauses := int(time.Since(start)/time.Millisecond) + 20
	assert.LessOrEqual(t, written, buffered+pauses*opts.BufferBytes)
}
