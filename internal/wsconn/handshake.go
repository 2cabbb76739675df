package wsconn

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/deflate"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// ErrAnswered is returned for a request that is not a valid handshake. It has been
// answered with an HTTP error.
var ErrAnswered = errors.New("not a WebSocket handshake")

// ErrDisconnected is returned if the client has gone before it could be answered. The request must not be
// answered any more, because net/http has given up its connection.
var ErrDisconnected = errors.New("the client has closed the connection during the handshake")

// upgrade performs the opening handshake (RFC 6455, section 4.2).
func (c *Conn) upgrade(w http.ResponseWriter, r *http.Request) error {
	offer, ok := deflate.ParseOffer(r.Header)
	if !ok {
		return errors.Errorf(errors.InvalidArgument, "Sec-WebSocket-Extensions is malformed")
	}
	if len(r.Header["Sec-Websocket-Version"]) > 1 { // RFC 6455, section 11.3.5
		return errors.Errorf(errors.InvalidArgument, "Sec-WebSocket-Version must not appear twice")
	}
	key, refused := checkUpgrade(r)
	if refused != nil {
		refused.answer(w)
		return ErrAnswered
	}
	extensions := ""
	if c.opts.Deflater != nil && offer != nil {
		c.windows = c.opts.Deflater.newWindows(offer)
		extensions = offer.Answer(c.windows)
	}
	if c.subprotocol != "" {
		c.subprotocol = element(r.Header["Sec-Websocket-Protocol"], c.subprotocol)
	}
	return c.takeOver(w, key, extensions)
}

// takeOver hijacks the connection and writes the 101 to it. It takes over the socket first: if that failed
// after the 101, the server would still parse requests on a connection that proxies treat as a tunnel.
// It writes the 101 itself because some frameworks delay the status until the body.
func (c *Conn) takeOver(w http.ResponseWriter, key, extensions string) error {
	response := c.response(w.Header(), key, extensions)
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		code := errors.Internal
		if errors.Is(err, http.ErrNotSupported) {
			code = errors.Unimplemented
		}
		return &errors.Error{Code: code, Message: "this server cannot upgrade the connection", Err: fmt.Errorf("hijack the connection of %T: %w", w, err)}
	}
	if extensions != "" {
		c.deflates, c.frames.inflates = true, true
	}
	// A fast client's first frames may be in net/http's buffer already.
	early, err := rw.Peek(rw.Reader.Buffered())
	if err == nil {
		c.initSocket(conn, early)
		_, err = c.writeConn(response, time.Now())
	}
	if err != nil {
		_ = conn.Close()
		return ErrDisconnected
	}
	return nil
}

// ownHeaders are those of a 101 that outer handlers do not decide. It has no content (RFC 9110, sections 6.4.1
// and 8.6).
//
//nolint:gochecknoglobals // never changed
var ownHeaders = map[string]bool{
	"Upgrade": true, "Connection": true, "Sec-Websocket-Accept": true, "Sec-Websocket-Extensions": true,
	"Content-Length": true, "Content-Type": true, "Content-Encoding": true, "Transfer-Encoding": true, "Trailer": true,
}

// response returns the 101 as bytes. It contains the headers that outer handlers have set.
func (c *Conn) response(outer http.Header, key, extensions string) []byte {
	b := bytes.NewBuffer(make([]byte, 0, 512))
	b.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ")
	b.WriteString(wsframe.AcceptKey(key))
	b.WriteString("\r\n")
	if c.subprotocol != "" {
		outer = outer.Clone()
		if outer == nil {
			outer = http.Header{}
		}
		outer.Set("Sec-WebSocket-Protocol", c.subprotocol)
	} else {
		c.subprotocol = outer.Get("Sec-WebSocket-Protocol")
	}
	_ = outer.WriteSubset(b, ownHeaders)
	if extensions != "" {
		b.WriteString("Sec-WebSocket-Extensions: " + extensions + "\r\n")
	}
	b.WriteString("\r\n")
	return b.Bytes()
}
