package router_test

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// closeFrameAfter opens a connection over TCP, sends bytes after the handshake, and returns the
// close frame of the server.
func closeFrameAfter(t *testing.T, r *router.Router, sent string) router.CloseError {
	t.Helper()
	server := httptest.NewServer(r)
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(conn, handshakeWith("")+sent)
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	_, err = http.ReadResponse(reader, nil)
	require.NoError(t, err)
	for {
		header := make([]byte, 2)
		_, err = io.ReadFull(reader, header)
		require.NoError(t, err)
		payload := make([]byte, header[1])
		_, err = io.ReadFull(reader, payload)
		require.NoError(t, err)
		if header[0] == 0x88 {
			return router.CloseError{Code: router.StatusCode(binary.BigEndian.Uint16(payload)), Reason: string(payload[2:])}
		}
	}
}

func TestCloseReason_OfTransportIsJSON(t *testing.T) {
	const key = "\x00\x00\x00\x00"
	for _, tt := range []struct {
		name, sent string
		want       router.CloseError
	}{
		{"reserved bit", "\xf1\x80" + key, router.CloseError{Code: 1002, Reason: `{"code":"INVALID_ARGUMENT","message":"a reserved bit is set"}`}},
		{"invalid UTF-8", "\x81\x81" + key + "\xff", router.CloseError{Code: 1007, Reason: `{"code":"INVALID_ARGUMENT","message":"invalid UTF-8"}`}},
		{"control frames", strings.Repeat("\x89\x80"+key, 200), router.CloseError{Code: 1008, Reason: `{"code":"RESOURCE_EXHAUSTED","message":"too many control frames"}`}},
		{"slow message", "\x81\x85" + key + "h", router.CloseError{Code: 1008, Reason: `{"code":"RESOURCE_EXHAUSTED","message":"message took too long"}`}},
		{"long message", "\x81\xff\x00\x00\x00\x00\x00\x10\x00\x01" + key, router.CloseError{Code: 1009, Reason: `{"code":"RESOURCE_EXHAUSTED","retryAfterMs":null,"message":"message is too big"}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := router.New(discardLogs(router.Options{
				Limits:   router.Limits{MaxMessageBytes: 1000},
				Timeouts: router.Timeouts{Message: 50 * time.Millisecond, Pong: 50 * time.Millisecond},
			}))
			assert.Equal(t, tt.want, closeFrameAfter(t, r, tt.sent))
		})
	}
}

func TestCloseReason_OfSlowConsumerIsJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(&router.Options{Limits: router.Limits{QueueMessages: 2}})
		conn := routertest.Dial(t, r)
		synctest.Wait()
		conn.Pause()
		slow := onlyConn(t, r)
		for range 10 {
			_ = slow.Send(Nothing{})
		}
		conn.Resume()
		assert.Equal(t, router.CloseError{Code: 1013, Reason: `{"code":"RESOURCE_EXHAUSTED","message":"client reads too slowly"}`}, conn.Closed())
	})
}

func TestCloseReason_OfApplicationStaysText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := router.New(nil)
		conn := routertest.Dial(t, r)
		synctest.Wait()
		onlyConn(t, r).Close(router.StatusTryAgainLater, "come back later")
		assert.Equal(t, router.CloseError{Code: 1013, Reason: "come back later"}, conn.Closed())
	})
}
