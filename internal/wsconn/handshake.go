package wsconn

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/deflate"
)

// ErrAnswered is returned for a request that is not a valid handshake. It has been
// answered with an HTTP error.
var ErrAnswered = errors.New("not a WebSocket handshake")

// ErrDisconnected is returned if the client has gone before it could be answered. The request must not be
// answered any more, because net/http has given up its connection.
var ErrDisconnected = errors.New("the client has closed the connection during the handshake")

// upgrade performs the opening handshake (RFC 6455, section 4.2).
func (c *Conn) upgrade(w http.ResponseWriter, r *http.Request) error {
	u := &upgrader{ResponseWriter: w, conn: c, header: w.Header().Clone()}
	if u.header == nil {
		u.header = http.Header{}
	}
	offer, ok := deflate.ParseOffer(r.Header)
	if !ok {
		return errors.Errorf(errors.InvalidArgument, "Sec-WebSocket-Extensions is malformed")
	}
	if len(r.Header.Values("Sec-WebSocket-Version")) > 1 { // RFC 6455, section 11.3.5
		return errors.Errorf(errors.InvalidArgument, "Sec-WebSocket-Version must not appear twice")
	}
	if c.opts.Deflater != nil && offer != nil {
		c.windows = c.opts.Deflater.newWindows(offer)
		u.extensions = offer.Answer(c.windows)
	}
	accept := &websocket.AcceptOptions{InsecureSkipVerify: true}
	if c.subprotocol != "" {
		accept.Subprotocols = []string{c.subprotocol}
	}
	lib, err := websocket.Accept(u, r, accept)
	switch {
	case u.err != nil:
		return u.err
	case err != nil:
		return ErrAnswered
	}
	// The library's connection has a finalizer and is part of a cycle: dropped without
	// CloseNow, it would never be freed. Its socket is the upgrader's, which ignores Close.
	c.subprotocol = lib.Subprotocol()
	_ = lib.CloseNow()
	return nil
}

// An upgrader is the ResponseWriter to which the library writes its response. It takes
// over the socket before it writes the 101: if taking it over failed after the
// 101, the server would still parse requests on a connection that proxies treat as a tunnel.
// It writes the 101 itself because some frameworks delay the status until the body.
type upgrader struct {
	http.ResponseWriter

	conn       *Conn
	header     http.Header // of the response to the handshake
	extensions string      // accepted, or ""
	err        error       // why the socket could not be taken over
}

// Header returns the header of the response, which begins with what outer handlers
// have set.
func (u *upgrader) Header() http.Header { return u.header }

// WriteHeader takes over the socket and writes the 101. Any other status is an error
// that the library reports, and is passed on.
func (u *upgrader) WriteHeader(status int) {
	switch {
	case u.err != nil: // the caller of Accept answers
	case status == http.StatusSwitchingProtocols:
		u.err = u.takeOver()
	default:
		maps.Copy(u.ResponseWriter.Header(), u.header)
		u.ResponseWriter.Header().Set("Connection", "close") // nothing may follow a rejected handshake
		u.ResponseWriter.WriteHeader(status)
	}
}

// Write passes on the text of an error.
func (u *upgrader) Write(p []byte) (int, error) {
	if u.err != nil {
		return len(p), nil
	}
	return u.ResponseWriter.Write(p)
}

// takeOver hijacks the connection and writes the 101 to it.
func (u *upgrader) takeOver() error {
	conn, rw, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		code := errors.Internal
		if errors.Is(err, http.ErrNotSupported) {
			code = errors.Unimplemented
		}
		return &errors.Error{Code: code, Message: "this server cannot upgrade the connection", Err: fmt.Errorf("hijack the connection of %T: %w", u.ResponseWriter, err)}
	}
	// A fast client's first frames may be in net/http's buffer already.
	early, err := rw.Peek(rw.Reader.Buffered())
	if err == nil {
		u.conn.initSocket(conn, early)
		_, err = u.conn.writeConn(u.response(), time.Now())
	}
	if err != nil {
		_ = conn.Close()
		return ErrDisconnected
	}
	return nil
}

// response returns the 101 as bytes.
func (u *upgrader) response() []byte {
	if u.extensions != "" {
		u.header.Set("Sec-WebSocket-Extensions", u.extensions)
		u.conn.deflates, u.conn.frames.inflates = true, true
	}
	var b bytes.Buffer
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	_ = u.header.WriteSubset(&b, map[string]bool{ // RFC 9110, sections 6.4.1 and 8.6: a 101 has no content
		"Content-Length": true, "Content-Type": true, "Content-Encoding": true, "Transfer-Encoding": true, "Trailer": true,
	})
	b.WriteString("\r\n")
	return b.Bytes()
}

// Hijack gives the library a connection that it cannot use.
func (u *upgrader) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if u.err != nil {
		return nil, nil, u.err
	}
	unused := unusedConn{u.conn.sock.conn}
	return unused, bufio.NewReadWriter(bufio.NewReaderSize(unused, 16), bufio.NewWriterSize(unused, 16)), nil
}

// An unusedConn protects the socket from the library's connection.
type unusedConn struct{ net.Conn }

func (unusedConn) Read([]byte) (int, error) { return 0, net.ErrClosed }

func (unusedConn) Write([]byte) (int, error) { return 0, net.ErrClosed }

func (unusedConn) Close() error { return nil }
