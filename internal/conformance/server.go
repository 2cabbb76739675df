package conformance

import (
	"context"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/internal/handshake"
)

// A server is a scripted WebSocket server: it answers greetings, heartbeats and requests for an acknowledgment by itself,
// and leaves the rest to the scenario.
type server struct {
	transcript *transcript
	schema     *schema
	codec      *cbor.Codec // of payloads in CBOR
	clock      clock
	peers      *Inbox[*peer]
	dials      *Inbox[time.Time] // when handshakes have arrived
	broken     *Inbox[string]    // what a message violates

	manual    atomic.Bool // greetings are left to the scenario
	manualAck atomic.Bool // acknowledgments are left to the scenario

	mu       sync.Mutex
	welcome  map[string]any                                                // members of the welcome besides those that every one has
	session  string                                                        // token of the session of clients that ask for one
	refuse   func(w http.ResponseWriter, req *http.Request) (refused bool) // handles a handshake
	accepted int                                                           // connections
	released chan struct{}                                                 // handshakes wait until it is closed; nil: they do not
}

type connKey struct{}

// serve starts the server on a listener. close returns when it has ended.
func (s *server) serve(listener net.Listener) (closeAll func()) {
	web := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: time.Hour,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = web.Serve(gatedListener{listener}) }()
	return func() {
		s.release()
		_ = web.Close()
		_ = listener.Close()
		<-done
		for _, p := range s.peers.All() {
			p.cut()
		}
	}
}

// hold makes handshakes wait until release.
func (s *server) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.released = make(chan struct{})
}

func (s *server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released != nil {
		close(s.released)
		s.released = nil
	}
}

// ServeHTTP accepts a connection.
func (s *server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	dials := s.dials.Add(time.Now())
	s.transcript.note("C→S", "handshake %d", dials)
	s.mu.Lock()
	released, refuse := s.released, s.refuse
	s.mu.Unlock()
	if released != nil {
		<-released
	}
	if refuse != nil && refuse(w, req) {
		return
	}
	ws, err := accept(w, req)
	if err != nil {
		return
	}
	conn, _ := req.Context().Value(connKey{}).(*gatedConn)
	if pipe, ok := w.(*pipeWriter); ok {
		conn = pipe.conn
	}
	p := &peer{
		server: s, ws: ws, conn: conn, cbor: ws.Subprotocol() == cbor.Subprotocol, token: handshake.Token(req), frames: NewInbox[*frame](),
		ended: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	s.addPeer(p)
	p.read()
}

// addPeer numbers a connection before others can find it.
func (s *server) addPeer(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted++
	p.number = s.accepted
	s.peers.Add(p)
}

// accept selects CBOR, or else the subprotocol with the token, as the router does.
func accept(w http.ResponseWriter, req *http.Request) (*websocket.Conn, error) {
	opts := &websocket.AcceptOptions{InsecureSkipVerify: true}
	if offered := req.Header.Get("Sec-WebSocket-Protocol"); offered != "" {
		opts.Subprotocols = []string{cbor.Subprotocol, offered}
	}
	return websocket.Accept(w, req, opts)
}

// welcomeTo returns the answer to a greeting.
func (s *server) welcomeTo(hello *frame) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	welcome := map[string]any{
		"connId": "C1", "pingIntervalMs": 25_000, "pongTimeoutMs": 10_000, "maxMessageBytes": 65_536, "callTimeoutMs": 30_000, "concurrency": 64,
	}
	maps.Copy(welcome, s.welcome)
	if s.session != "" && lookup(hello.message, "payload.session") == true {
		welcome["session"] = map[string]any{"token": s.session, "resumeWithinMs": 120_000}
	}
	return welcome
}

// rejectAfterUpgrade accepts a connection and closes it.
func (s *server) rejectAfterUpgrade(w http.ResponseWriter, req *http.Request, code int, reason string) {
	ws, err := accept(w, req)
	if err == nil {
		s.transcript.note("S→C", "close %d %s", code, reason)
		_ = ws.Close(websocket.StatusCode(code), reason)
	}
}

// violation records what a message violates. The scenario fails.
func (s *server) violation(problem, message string) {
	s.broken.Add(problem + ": " + message)
}

// A gatedConn stops delivering what it reads when it is shut.
type gatedConn struct {
	net.Conn

	shut   atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func newGatedConn(conn net.Conn) *gatedConn {
	return &gatedConn{Conn: conn, closed: make(chan struct{})}
}

// Read reads bytes, and blocks with them while the gate is shut.
func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.shut.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

// Close closes the connection.
func (c *gatedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

type gatedListener struct{ net.Listener }

// Accept returns a gatedConn.
func (l gatedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return newGatedConn(conn), nil
}
