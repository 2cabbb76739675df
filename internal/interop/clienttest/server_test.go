package clienttest_test

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/router"
)

// A server is a scripted WebSocket server: it answers greetings, heartbeats and requests for an acknowledgment by itself,
// and leaves the rest to the scenario.
type server struct {
	t     *testing.T
	clock clock
	peers *inbox[*peer]
	dials *inbox[time.Time] // when handshakes have arrived

	// The scenario may set these before the client connects.
	welcome   func(hello *frame) map[string]any // members of the welcome besides those that every one has
	handshake func(w http.ResponseWriter, req *http.Request) (handled bool)
	gate      atomic.Pointer[<-chan struct{}] // handshakes wait until it is closed
	manual    atomic.Bool                     // greetings are left to the scenario
	manualAck atomic.Bool                     // acknowledgments are left to the scenario
}

type connKey struct{}

// serve starts the server on a listener. close returns when it has ended.
func (s *server) serve(listener net.Listener) (closeAll func()) {
	web := &http.Server{
		Handler: s, ReadHeaderTimeout: time.Hour,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = web.Serve(gatedListener{listener}) }()
	return func() {
		_ = web.Close()
		_ = listener.Close()
		<-done
		for _, p := range s.peers.all() {
			p.cut()
		}
	}
}

// ServeHTTP accepts a connection.
func (s *server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.dials.add(time.Now())
	if gate := s.gate.Load(); gate != nil {
		<-*gate
	}
	if s.handshake != nil && s.handshake(w, req) {
		return
	}
	ws, err := accept(w, req)
	if err != nil {
		return
	}
	conn, _ := req.Context().Value(connKey{}).(*gatedConn)
	p := &peer{
		server: s, ws: ws, conn: conn, cbor: ws.Subprotocol() == cbor.Subprotocol, token: router.Token(req), frames: newInbox[*frame](),
		ended: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	s.peers.add(p)
	p.read()
}

// accept selects CBOR, or else the subprotocol with the token, as the router does.
func accept(w http.ResponseWriter, req *http.Request) (*websocket.Conn, error) {
	opts := &websocket.AcceptOptions{InsecureSkipVerify: true}
	if offered := req.Header.Get("Sec-WebSocket-Protocol"); offered != "" {
		opts.Subprotocols = []string{cbor.Subprotocol, offered}
	}
	return websocket.Accept(w, req, opts)
}

// A frame is a message of the client.
type frame struct {
	Type string `json:"type"`
	Meta struct {
		ID        string `json:"correlationId"`
		TimeoutMs int    `json:"timeoutMs"`
		Ack       bool   `json:"ack"`
		Credit    *int   `json:"credit"`
	} `json:"meta"`
	Payload struct {
		N         int    `json:"n"`
		Topic     string `json:"topic"`
		Epoch     string `json:"epoch"`
		Offset    uint64 `json:"offset"`
		State     bool   `json:"state"`
		Presence  bool   `json:"presence"`
		Positions bool   `json:"positions"`
		Session   bool   `json:"session"`
		Token     string `json:"token"`
		Code      string `json:"code"`
		Message   string `json:"message"`
		Topics    []struct {
			Topic  string `json:"topic"`
			Epoch  string `json:"epoch"`
			Offset uint64 `json:"offset"`
		} `json:"topics"`
	} `json:"payload"`
	At time.Time `json:"-"`
}

// A peer is the server's end of a connection.
type peer struct {
	server *server
	ws     *websocket.Conn
	conn   *gatedConn
	ctx    context.Context //nolint:containedctx // it ends with the connection
	cancel context.CancelFunc
	cbor   bool // payloads of the application are CBOR
	token  string
	frames *inbox[*frame]

	mu         sync.Mutex
	heartbeats int
	ended      chan struct{} // closed after code is set
	code       websocket.StatusCode
}

func (p *peer) read() {
	defer close(p.ended)
	defer p.cancel()
	for {
		kind, message, err := p.ws.Read(p.ctx)
		if err != nil {
			p.code = websocket.CloseStatus(err)
			return
		}
		f := &frame{At: time.Now()}
		if err := p.decode(kind, message, f); err != nil {
			p.server.t.Errorf("the client has sent %s: %v", message, err)
			continue
		}
		p.answerByItself(f)
	}
}

func (p *peer) answerByItself(f *frame) {
	s := p.server
	switch {
	case f.Type == "__heartbeat":
		p.mu.Lock()
		p.heartbeats++
		p.mu.Unlock()
		p.sendRaw(`{"type":"__heartbeat_ack","meta":{"ts":1730000000000}}`)
		return
	case f.Type == "$ws:hello" && !s.manual.Load():
		p.greet(f)
	case f.Meta.Ack && !s.manualAck.Load():
		p.reply(f, "$ws:ack", nil)
	}
	p.frames.add(f)
}

// greet answers a greeting.
func (p *peer) greet(f *frame) {
	welcome := map[string]any{
		"connId": "C1", "pingIntervalMs": 25_000, "pongTimeoutMs": 10_000, "maxMessageBytes": 65_536, "callTimeoutMs": 30_000, "concurrency": 64,
	}
	if p.server.welcome != nil {
		maps.Copy(welcome, p.server.welcome(f))
	}
	p.reply(f, "$ws:welcome", welcome)
}

// send sends a message. meta are further members; it may be nil.
func (p *peer) send(typ string, meta map[string]any, payload any) {
	all := map[string]any{"timestamp": p.server.clock.timestamp()}
	maps.Copy(all, meta)
	head, err := json.Marshal(map[string]any{"type": typ, "meta": all})
	require.NoError(p.server.t, err)
	p.write(head, p.encode(typ, payload))
}

func (p *peer) sendRaw(text string) { p.write([]byte(text), nil) }

// reply sends an answer to a message.
func (p *peer) reply(f *frame, typ string, payload any) {
	p.send(typ, map[string]any{"correlationId": f.Meta.ID}, payload)
}

// answer sends the reply to an ASK.
func (p *peer) answer(f *frame) { p.reply(f, "ANSWER", map[string]int{"n": f.Payload.N}) }

// reject answers a message with an error. more are further members of the error, in pairs.
func (p *peer) reject(f *frame, code string, more ...any) {
	payload := map[string]any{"code": code, "retryable": false}
	for i := 0; i < len(more); i += 2 {
		payload[more[i].(string)] = more[i+1]
	}
	p.reply(f, "RPC_ERROR", payload)
}

// publish sends a publication of room with a position.
func (p *peer) publish(offset uint64, payload said) {
	p.send("SAID", map[string]any{"topic": room, "offset": offset}, payload)
}

// expect returns the next message of a type.
func (p *peer) expect(typ string) *frame {
	p.server.t.Helper()
	f, ok := p.frames.take(func(f *frame) bool { return f.Type == typ }, p.server.clock.limit)
	if !ok {
		require.FailNow(p.server.t, "no "+typ, "the client has sent %s, the server waits for %s", p.types(), typ)
	}
	return f
}

// expectN returns the message of a type with a number, which must be the next of its type.
func (p *peer) expectN(typ string, n int) *frame {
	p.server.t.Helper()
	f := p.expect(typ)
	require.Equal(p.server.t, n, f.Payload.N)
	return f
}

// refuse fails if a message of a type arrives, or has arrived, within a time of the client's clock.
func (p *peer) refuse(typ string, d time.Duration) {
	p.server.t.Helper()
	f, ok := p.frames.take(func(f *frame) bool { return f.Type == typ }, p.server.clock.real(d))
	if ok {
		require.FailNow(p.server.t, "the client has sent "+typ, "%+v", f.Payload)
	}
}

func (p *peer) types() []string {
	var all []string
	for _, f := range p.frames.all() {
		all = append(all, f.Type)
	}
	return all
}

// mute stops reading, as on a half-open connection: pings and heartbeats have no answer.
func (p *peer) mute() { p.conn.shut.Store(true) }

// close sends a close frame.
func (p *peer) close(code int, reason string) { _ = p.ws.Close(websocket.StatusCode(code), reason) }

// cut ends the connection without a close frame.
func (p *peer) cut() { p.cancel(); _ = p.conn.Close() }

// await waits until the client has ended the connection, and returns the code of its close frame, or -1.
func (p *peer) await() int {
	p.server.t.Helper()
	select {
	case <-p.ended:
		return int(p.code)
	case <-time.After(p.server.clock.limit):
		require.FailNow(p.server.t, "the client has not closed the connection")
		return 0
	}
}

// accept returns the next connection.
func (s *server) accept() *peer {
	s.t.Helper()
	p, ok := s.peers.take(func(*peer) bool { return true }, s.clock.limit)
	require.True(s.t, ok, "the client has not connected")
	s.t.Cleanup(func() { p.cut() })
	return p
}

// noDial fails if the client connects within a time of its clock.
func (s *server) noDial(d time.Duration) {
	s.t.Helper()
	_, ok := s.peers.take(func(*peer) bool { return true }, s.clock.real(d))
	require.False(s.t, ok, "the client has connected")
}

// rejectAfterUpgrade accepts a connection and closes it with a code of the application.
func (s *server) rejectAfterUpgrade(w http.ResponseWriter, req *http.Request, code websocket.StatusCode) bool {
	ws, err := accept(w, req)
	if err == nil {
		_ = ws.Close(code, `{"code":"UNAUTHENTICATED","message":"log in first"}`)
	}
	return true
}

// A gatedConn stops delivering what it reads when it is shut.
type gatedConn struct {
	net.Conn

	shut   atomic.Bool
	closed chan struct{}
	once   sync.Once
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
	return &gatedConn{Conn: conn, closed: make(chan struct{})}, nil
}

// handshakeAfter delays the response to handshakes.
func (s *server) handshakeAfter(d time.Duration) {
	s.handshake = func(http.ResponseWriter, *http.Request) bool {
		s.clock.sleep(d)
		return false
	}
}
