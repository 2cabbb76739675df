package conformance

import (
	"bufio"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/internal/fallback"
)

// HTTPPath is where the scripted server also serves its connections over plain HTTP, as docs/protocol.md defines in section 15. The
// handshakes of a scenario are then the requests that open a connection.
const HTTPPath = "/http"

// handler returns the handler of all requests.
func (s *server) handler() http.Handler {
	overHTTP := fallback.New(fallback.Config{
		MaxConns: 100, MaxMessageBytes: func() int64 { return 1 << 20 }, MaxBodyBytes: 64 << 20, WriteTimeout: 10 * time.Second,
		Serve: func(w http.ResponseWriter, req *http.Request, _ fallback.Mode) {
			pipe := &pipeWriter{ResponseWriter: w, accepted: make(chan struct{})}
			ended := make(chan struct{})
			go func() { defer close(ended); s.ServeHTTP(pipe, req) }()
			select {
			case <-pipe.accepted:
			case <-ended:
			}
		},
		Refuses:     func(*http.Request) bool { return false },
		Full:        func(*http.Request) {},
		Allow:       func(*http.Request) bool { return true },
		Client:      func(*http.Request) netip.Prefix { return netip.Prefix{} },
		Unflushable: func(*http.Request, http.ResponseWriter) {},
		Peers:       fallback.Peers{Name: "conformance", Nodes: func() ([]string, bool) { return nil, true }},
	})
	mux := http.NewServeMux()
	mux.Handle(HTTPPath, overHTTP)
	mux.Handle("/", s)
	return mux
}

// A pipeWriter is the ResponseWriter of a handshake for a connection over HTTP.
type pipeWriter struct {
	http.ResponseWriter

	conn     *gatedConn
	accepted chan struct{} // closed when the handshake is accepted, and conn is set
}

// WriteHeader refuses a handshake as a WebSocket client sees it, without a close code, unless it accepts it.
func (w *pipeWriter) WriteHeader(status int) {
	if status != http.StatusSwitchingProtocols {
		w.ResponseWriter.(interface{ Refuse(code int, reason string) }).Refuse(int(websocket.StatusAbnormalClosure), "")
	}
}

// Hijack writes the response that accepts a handshake, and returns the connection.
func (w *pipeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, _, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.conn = newGatedConn(conn)
	both := bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn))
	_, _ = both.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = w.Header().Write(both)
	_, _ = both.WriteString("\r\n")
	close(w.accepted)
	return w.conn, both, both.Flush()
}
