package fallback

import (
	"bufio"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// open opens a connection and sends its first events.
func (s *Server) open(w http.ResponseWriter, req *http.Request) {
	text, status := readBody(w, req, maxOpenBytes)
	if status != 0 {
		answer(w, status)
		return
	}
	open, err := parseOpen(text)
	if err != nil {
		answer(w, http.StatusBadRequest)
		return
	}
	client := s.config.Client(req)
	if s.ctx.Err() != nil { // a status, and not an event: proxies try another node after it
		answer(w, http.StatusServiceUnavailable)
		return
	}
	if !s.slots.acquire(client) {
		s.config.Full(req)
		answer(w, http.StatusServiceUnavailable)
		return
	}
	h := &handshake{server: s, client: client, header: http.Header{}, opened: make(chan string, 1), holdsSlot: true}
	defer h.release()
	out, err := s.newOutput(w, req, open.Mode, 0)
	ctx := req.Context()
	if err != nil || out.begin(ctx) != nil { // before the handshake, which may take long
		return
	}
	s.config.Serve(h, handshakeRequest(req, open), open.Mode)
	protocol, accepted := h.accepted()
	if !accepted {
		h.release() // before the client knows
		_ = out.write(ctx, closeEvent(h.refusal).append(nil, 1))
		return
	}
	c, r := h.conn, h.response
	defer c.detach(r)
	ctx, end := s.responses.begin(ctx, c.secret) // before the client can send a down
	if end == nil {
		return
	}
	defer end()
	first := jsonEvent("open", openData{c.secret.String(), protocol})
	if err := out.write(ctx, first.append(nil, 0)); err == nil && open.Mode == Stream {
		c.respond(ctx, out, r, 0)
	}
}

// handshakeRequest returns the request of a WebSocket handshake (RFC 6455, section 4.1) of the client that has sent
// an open.
func handshakeRequest(req *http.Request, open openRequest) *http.Request {
	in := req.Clone(req.Context())
	in.Method, in.Proto, in.ProtoMajor, in.ProtoMinor = http.MethodGet, "HTTP/1.1", 1, 1
	in.Body, in.ContentLength, in.TransferEncoding, in.Trailer = http.NoBody, 0, nil, nil
	in.Form, in.PostForm, in.MultipartForm = nil, nil, nil
	in.URL.RawQuery = open.Query
	in.RequestURI = in.URL.RequestURI()
	for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Type", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol"} {
		in.Header.Del(name)
	}
	in.Header.Set("Connection", "Upgrade")
	in.Header.Set("Upgrade", "websocket")
	in.Header.Set("Sec-WebSocket-Version", "13")
	in.Header.Set("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==") // 16 bytes; only caches could confuse two handshakes
	if len(open.Protocols) > 0 {
		in.Header.Set("Sec-WebSocket-Protocol", strings.Join(open.Protocols, ", "))
	}
	return in
}

// A handshake is the ResponseWriter of the handshake of an open, whose slot it holds.
type handshake struct {
	server *Server
	client netip.Prefix
	header http.Header
	opened chan string // the subprotocol; closed without one if the handshake failed

	conn     *conn // nil until it is hijacked
	response *response
	refusal  closeData

	holdsSlot bool // otherwise, the connection does
}

// Header returns a header that is not sent.
func (h *handshake) Header() http.Header { return h.header }

// Write drops the text of a refusal.
func (h *handshake) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader refuses the handshake with a code for the status, unless Refuse does.
func (h *handshake) WriteHeader(status int) {
	if h.refusal.Code == 0 {
		h.refusal.Code = 4000 + status
	}
}

// Refuse refuses the handshake.
func (h *handshake) Refuse(code int, reason string) { h.refusal = closeData{code, reason} }

// Hijack returns the router's end of a pipe.
func (h *handshake) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	ours, theirs := net.Pipe()
	h.conn, h.response = newConn(h.server, h.client, ours)
	go h.conn.read(h.opened)
	end := routerEnd{theirs}
	return end, bufio.NewReadWriter(bufio.NewReaderSize(end, 16), bufio.NewWriterSize(end, 16)), nil
}

// accepted reports whether the handshake was accepted, with which subprotocol, and makes the connection known.
func (h *handshake) accepted() (protocol string, ok bool) {
	if h.conn == nil {
		return "", false
	}
	if protocol, ok = <-h.opened; !ok {
		h.refusal = closeData{Code: codeAbnormal}
		return "", false
	}
	h.server.add(h.conn)
	h.holdsSlot = false
	return protocol, true
}

// release releases what the handshake holds, unless the connection was added.
func (h *handshake) release() {
	if !h.holdsSlot {
		return
	}
	h.holdsSlot = false
	h.server.slots.release(h.client, http.StatusOK)
	if h.conn != nil {
		_ = h.conn.pipe.Close()
	}
}

// A routerEnd is the router's end of a pipe. Its writes have no deadline: one waits until the client has received
// most of what was written before, which takes as long as that is on its way. If nothing arrives any more,
// awaitRoom ends the wait.
type routerEnd struct{ net.Conn }

// SetWriteDeadline does nothing.
func (routerEnd) SetWriteDeadline(time.Time) error { return nil }
