package fallback

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsframe"
)

const (
	// probePause is between the two messages of a probe: longer than a proxy takes that accepts a WebSocket and
	// then closes it.
	probePause = 3 * time.Second

	// maxProbes of all clients are in progress at the same time, each with a socket and a goroutine.
	maxProbes = 256
)

// probe opens a WebSocket over which the server sends two messages with a pause: a client finds out whether WebSocket
// works by now, without a connection of the router.
func (s *Server) probe(w http.ResponseWriter, req *http.Request, allowed bool) {
	key := req.Header.Get("Sec-WebSocket-Key")
	client := s.config.Client(req)
	switch {
	case !allowed:
		answer(w, http.StatusForbidden)
		return
	case !strings.EqualFold(req.Header.Get("Upgrade"), "websocket") || key == "" || req.Header.Get("Sec-WebSocket-Version") != "13":
		answer(w, http.StatusBadRequest)
		return
	case !s.probing.acquire(client):
		answer(w, http.StatusTooManyRequests)
		return
	}
	defer s.probing.release(client, http.StatusOK)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		answer(w, http.StatusNotImplemented)
		return
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(s.config.WriteTimeout))
	out := fmt.Appendf(nil, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		wsframe.AcceptKey(key))
	if _, err := conn.Write(wsframe.AppendFrame(out, wsframe.Server, wsframe.Text, []byte("0"))); err != nil || !quiet(conn, probePause) {
		return
	}
	out = wsframe.AppendFrame(nil, wsframe.Server, wsframe.Text, []byte("1"))
	if _, err := conn.Write(wsframe.AppendClose(out, wsframe.Server, 1000, "")); err == nil {
		_, _ = bufio.NewReader(conn).ReadByte() // the close frame of the client: closing the socket before could discard ours
	}
}

// quiet waits, and reports whether the client has neither sent anything nor gone meanwhile.
func quiet(conn net.Conn, pause time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(pause))
	_, err := conn.Read(make([]byte, 1))
	_ = conn.SetDeadline(time.Now().Add(pause))
	return errors.Is(err, os.ErrDeadlineExceeded)
}
