//go:build simulatedpoll

package netpoll_test

import (
	"bytes"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/netpoll"
)

func TestPipe_CarriesBytesBothWays(t *testing.T) {
	for _, capacity := range []int{0, 1, 100} {
		synctest.Test(t, func(t *testing.T) {
			a, b := netpoll.Pipe(capacity)
			sent := bytes.Repeat([]byte("0123456789"), 1000)
			go func() {
				got, err := io.ReadAll(b)
				assert.NoError(t, err)
				n, err := b.Write(got)
				assert.NoError(t, err)
				assert.Equal(t, len(sent), n)
				_ = b.Close()
			}()
			n, err := a.Write(sent)
			require.NoError(t, err)
			require.Equal(t, len(sent), n)
			require.NoError(t, a.(netpoll.SimulatedConn).CloseWrite())
			got, err := io.ReadAll(a)
			require.NoError(t, err)
			require.Equal(t, sent, got)
			_, err = a.Write(sent)
			require.ErrorIs(t, err, net.ErrClosed)
			require.NoError(t, a.Close())
			_, err = a.Read(make([]byte, 1))
			require.ErrorIs(t, err, net.ErrClosed)
		})
	}
}

func TestPipe_WritesEndAtDeadlineOrClose(t *testing.T) {
	for _, capacity := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			a, b := netpoll.Pipe(capacity)
			require.NoError(t, a.SetDeadline(time.Now().Add(time.Second)))
			n, err := a.Write([]byte("12345"))
			assert.Equal(t, capacity, n)
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			_, err = a.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.NoError(t, a.SetDeadline(time.Time{}))
			time.AfterFunc(time.Second, func() { _ = b.Close() })
			_, err = a.Write([]byte("12345"))
			require.ErrorIs(t, err, io.ErrClosedPipe)
			_, err = a.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
			_ = a.Close()
		})
	}
}

func TestPipe_TryNeverWaitsAndNotifiesOncePerChange(t *testing.T) {
	conn, peer := netpoll.Pipe(4)
	c := conn.(netpoll.SimulatedConn)
	notified := 0
	c.SetNotify(func() { notified++ })
	buf := make([]byte, 10)
	n, err := c.TryRead(buf)
	require.NoError(t, err)
	require.Zero(t, n)
	n, err = c.TryWrite([]byte("123456"))
	require.NoError(t, err)
	require.Equal(t, 4, n)
	_, writable, _ := c.Readiness()
	assert.False(t, writable)
	notified = 0
	_, _ = io.ReadFull(peer, buf[:2])
	_, _ = io.ReadFull(peer, buf[:1])
	assert.Equal(t, 1, notified, "there is room")
	_, _ = peer.Write([]byte("1"))
	_, _ = peer.Write([]byte("2"))
	assert.Equal(t, 2, notified, "there is something to read")
	_ = peer.Close()
	assert.Equal(t, 3, notified)
	readable, writable, hangup := c.Readiness()
	assert.True(t, readable && writable && hangup)
	n, err = c.TryRead(buf)
	require.NoError(t, err)
	assert.Equal(t, "12", string(buf[:n]))
	_, err = c.TryRead(buf)
	require.ErrorIs(t, err, io.EOF)
	_, err = c.TryWrite(buf)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	_ = c.Close()
}
