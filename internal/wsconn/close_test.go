package wsconn_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/wsconn"
)

func TestConn_WritesFramesInOrderAndTheCloseFrameLast(t *testing.T) {
	addr, conns := listen(t, options())
	c := dialRaw(t, addr, "")
	server := <-conns
	go func() { _ = echo(server) }()
	const senders, each = 4, 100
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				assert.NoError(t, send(server, fmt.Sprintf("%d %d %s", s, i, strings.Repeat("x", i*50))))
			}
		})
	}
	wg.Wait()
	server.Close(4001, strings.Repeat("é", 100))
	require.ErrorIs(t, send(server, "too late"), wsconn.ErrClosed)
	next := [senders]int{}
	for range senders * each {
		first, payload := c.next()
		require.Equal(t, byte(fin|text), first)
		var s, i int
		_, err := fmt.Sscan(payload, &s, &i)
		require.NoError(t, err)
		assert.Equal(t, next[s], i)
		next[s]++
	}
	first, payload := c.next()
	assert.Equal(t, byte(fin|closing), first)
	assert.Equal(t, "\x0f\xa1"+strings.Repeat("é", 61), payload, "shortened between two runes")
}

func TestConn_CloseTimeoutEndsTheConnection(t *testing.T) {
	t.Parallel()
	opts := options()
	opts.CloseTimeout = time.Second
	for name, stuck := range map[string]bool{"a silent peer": false, "a peer that does not read": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, conns := listen(t, opts)
			dialRaw(t, addr, "")
			server := <-conns
			for stuck && pending(server) < 500_000 {
				_ = send(server, strings.Repeat("x", 100_000))
			}
			start := time.Now()
			server.Close(1000, "")
			assert.Less(t, time.Since(start), opts.CloseTimeout, "Close does not wait")
			assert.Error(t, echo(server))
			assert.Less(t, time.Since(start), 30*time.Second)
		})
	}
}
