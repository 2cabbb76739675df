package wsconn_test

import (
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestConn_BlockingDescriptorDelaysNoOtherConnection clears O_NONBLOCK, which all descriptors of a
// socket share, as a child process that has inherited the socket may do.
func TestConn_BlockingDescriptorDelaysNoOtherConnection(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	shared := make(chan *os.File, 1)
	opts := options()
	opts.BufferBytes = 512
	addr, conns := serve(t, &sharingListener{listener, shared}, opts)
	c := dialRaw(t, addr, "")
	file := <-shared
	defer func() { _ = file.Close() }()
	require.NoError(t, syscall.SetNonblock(int(file.Fd()), false))
	go func() { _ = echo(<-conns) }()
	// A read that fills the buffer is followed by one that finds nothing, and a long
	// message does not fit into the send buffer.
	for _, want := range []string{strings.Repeat("x", 512-8), "short", strings.Repeat("x", 900_000)} {
		c.send(clientFrame(fin|text, want))
		_, got := c.next()
		require.Equal(t, want, got)
		require.NoError(t, syscall.SetNonblock(int(file.Fd()), false))
	}
}

// A sharingListener duplicates the descriptors of its connections.
type sharingListener struct {
	net.Listener

	files chan *os.File
}

func (l *sharingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	file, err := conn.(*net.TCPConn).File()
	if err != nil {
		return nil, err
	}
	l.files <- file
	return conn, nil
}

// TestConn_ReadsBeyondUrgentData sends urgent data (RFC 9293, section 3.8.5), where the
// kernel ends a read although more has arrived.
func TestConn_ReadsBeyondUrgentData(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // all parts arrive before the server reads one
	addr, conns := listen(t, options())
	for range 20 {
		c := dialRaw(t, addr, "")
		c.send(clientFrame(fin|text, "parked behind this one"))
		go func() { _ = echo(<-conns) }()
		c.next()
		messages := clientFrame(fin|text, "before")
		raw, err := c.Conn.(*net.TCPConn).SyscallConn()
		require.NoError(t, err)
		require.NoError(t, raw.Control(func(fd uintptr) {
			_ = syscall.Sendto(int(fd), messages, 0, nil)
			_ = syscall.Sendto(int(fd), []byte("!"), syscall.MSG_OOB, nil)
			_ = syscall.Sendto(int(fd), clientFrame(fin|text, "behind"), 0, nil)
		}))
		_, got := c.next()
		assert.Equal(t, "before", got)
		_, got = c.next()
		assert.Equal(t, "behind", got)
		_ = c.Close()
	}
}
