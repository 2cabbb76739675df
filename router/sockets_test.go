package router_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

func handshake(t *testing.T, conn net.Conn) {
	_, err := io.WriteString(conn, handshakeText)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
}

// text encodes a text frame of 126 to 65535 bytes with a zero mask.
func text(payload string) []byte {
	n := len(payload)
	return append([]byte{0x81, 0x80 | 126, byte(n >> 8), byte(n), 0, 0, 0, 0}, payload...)
}

func reset(t *testing.T, conn net.Conn) {
	require.NoError(t, conn.(*net.TCPConn).SetLinger(0))
	_ = conn.Close()
}

// TestServe_ResetAfterEveryByteEndsConnection resets connections after every byte of a conversation.
func TestServe_ResetAfterEveryByteEndsConnection(t *testing.T) {
	closed := make(chan router.CloseError, 1)
	r := router.New(&router.Options{OnClose: func(_ *router.Conn, end router.CloseError) { closed <- end }})
	router.RPC(r, echo)
	server := newTestServer(t, r)
	call := text(`{"type":"ECHO","meta":{"correlationId":"c"},"payload":{"n":5}}` + strings.Repeat(" ", 64))
	fragments := []byte{0x01, 0x81, 0, 0, 0, 0, '{', 0x89, 0x80, 0, 0, 0, 0, 0x80, 0x81, 0, 0, 0, 0, '}'}
	closeFrame := []byte{0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8}
	conversation := slices.Concat(call, fragments, call, closeFrame)
	for n := range len(conversation) + 1 {
		conn := dialUpgraded(t, server)
		_, err := conn.Write(conversation[:n])
		require.NoError(t, err)
		if n > len(call) {
			_, _ = conn.Read(make([]byte, 1)) // the answer has started to arrive
		}
		reset(t, conn)
		<-closed
	}
	assert.Empty(t, collect(r))
}
