//go:build !js

package routertest

import (
	"context"
	rawjson "encoding/json"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/router"
)

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

// A Conn is the client's end of a connection. It reads all the time and keeps
// what nobody has received yet, so that a test cannot be a slow client by
// accident. It is safe for concurrent use, but Receive and its like must be
// called by the test's own goroutine, since they may end the test.
type Conn struct {
	t    testing.TB
	ws   *websocket.Conn
	pipe *pipe

	mu       sync.Mutex
	received []Frame
	arrived  chan struct{} // closed and renewed when something came
	end      *router.CloseError
	calls    int
}

// A Frame is a message as it travels.
type Frame struct {
	Type string `json:"type"`
	Meta struct {
		Timestamp     int64  `json:"timestamp"`
		CorrelationID string `json:"correlationId"`
	} `json:"meta"`
	Payload rawjson.RawMessage `json:"payload"`

	Text string `json:"-"` // the whole of it
}

func newConn(t testing.TB, ws *websocket.Conn, pipe *pipe) *Conn {
	c := &Conn{t: t, ws: ws, pipe: pipe, arrived: make(chan struct{})}
	ws.SetReadLimit(-1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.read()
	}()
	t.Cleanup(func() {
		c.Abort()
		<-ended
	})
	return c
}

func (c *Conn) read() {
	for {
		_, text, err := c.ws.Read(context.Background())
		c.mu.Lock()
		if err != nil {
			c.end = &router.CloseError{Code: router.StatusAbnormal}
			if peer, ok := errors.AsType[websocket.CloseError](err); ok {
				c.end = &router.CloseError{Code: router.StatusCode(peer.Code), Reason: peer.Reason}
			}
		} else {
			frame := Frame{Text: string(text)}
			if jsonv2.Unmarshal(text, &frame) != nil {
				c.t.Errorf("routertest: received %q, which is not an envelope", text)
			}
			c.received = append(c.received, frame)
		}
		close(c.arrived)
		c.arrived = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Send sends a message without a correlation id.
func (c *Conn) Send(m router.Message) {
	c.t.Helper()
	c.SendText(envelope(c.t, m, ""))
}

// SendText sends a text message as it stands.
func (c *Conn) SendText(text string) {
	c.t.Helper()
	if err := c.ws.Write(context.Background(), websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatalf("routertest: send: %v", err)
	}
}

// An outgoing message begins with its type, as the protocol recommends.
type outgoing struct {
	Type string `json:"type"`
	Meta struct {
		Timestamp     int64  `json:"timestamp"`
		CorrelationID string `json:"correlationId,omitempty"`
	} `json:"meta"`
	Payload router.Message `json:"payload"`
}

func envelope(t testing.TB, m router.Message, correlationID string) string {
	t.Helper()
	out := outgoing{Type: m.MessageType(), Payload: m}
	out.Meta.Timestamp, out.Meta.CorrelationID = time.Now().UnixMilli(), correlationID
	text, err := jsonv2.Marshal(out)
	if err != nil {
		t.Fatalf("routertest: encode %s: %v", m.MessageType(), err)
	}
	return string(text)
}

// Next returns the next message that came, in order.
func (c *Conn) Next() Frame {
	c.t.Helper()
	return c.take("a message", func(Frame) bool { return true })
}

// take returns the first message that fits and leaves the others.
func (c *Conn) take(what string, fits func(Frame) bool) Frame {
	c.t.Helper()
	timeout := time.After(patience)
	for {
		c.mu.Lock()
		for i, frame := range c.received {
			if fits(frame) {
				c.received = append(c.received[:i:i], c.received[i+1:]...)
				c.mu.Unlock()
				return frame
			}
		}
		end, arrived := c.end, c.arrived
		c.mu.Unlock()
		if end != nil {
			c.t.Fatalf("routertest: waiting for %s, but %v", what, end)
		}
		select {
		case <-arrived:
		case <-timeout:
			c.t.Fatalf("routertest: %s did not come within %v", what, patience)
		}
	}
}

// Pending returns how many messages came that nobody has received.
func (c *Conn) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.received)
}

// Close closes the connection as a browser does, with 1000.
func (c *Conn) Close() { c.CloseWith(router.StatusNormal, "") }

// CloseWith closes the connection with a code and a reason.
func (c *Conn) CloseWith(code router.StatusCode, reason string) {
	_ = c.ws.Close(websocket.StatusCode(code), reason)
}

// Abort ends the connection without a word, like a client that is killed.
func (c *Conn) Abort() {
	_ = c.pipe.Close()
	_ = c.ws.CloseNow()
}

// Freeze stops reading for good, like a client whose host has gone: nothing is
// answered any more, neither a ping nor a close frame.
func (c *Conn) Freeze() { c.pipe.frozen.Store(true) }

// Hold stops reading until Resume is called, like a client who is too slow. One
// message may still get through.
func (c *Conn) Hold() {
	c.pipe.mu.Lock()
	defer c.pipe.mu.Unlock()
	if c.pipe.held == nil {
		c.pipe.held = make(chan struct{})
	}
}

// Resume undoes Hold.
func (c *Conn) Resume() {
	c.pipe.mu.Lock()
	defer c.pipe.mu.Unlock()
	if c.pipe.held == nil {
		return
	}
	close(c.pipe.held)
	c.pipe.held = nil
}

// Closed waits until the server has closed the connection and returns the close
// frame's content.
func (c *Conn) Closed() router.CloseError {
	c.t.Helper()
	timeout := time.After(patience)
	for {
		c.mu.Lock()
		end, arrived := c.end, c.arrived
		c.mu.Unlock()
		if end != nil {
			return *end
		}
		select {
		case <-arrived:
		case <-timeout:
			c.t.Fatalf("routertest: connection was not closed within %v", patience)
		}
	}
}

// Receive returns the next message, which must be an M.
func Receive[M router.Message](c *Conn) M {
	c.t.Helper()
	return decode[M](c, c.Next())
}

// ReceiveError returns the next message, which must be an error.
func ReceiveError(c *Conn) *errors.Error {
	c.t.Helper()
	return decodeError(c.t, c.Next())
}

// Call sends an RPC and returns its reply. An error fails the test. Messages
// that come meanwhile stay to be received.
func Call[Reply router.Message](c *Conn, m router.Message) Reply {
	c.t.Helper()
	return decode[Reply](c, c.call(m))
}

// CallError sends an RPC that must fail, and returns the error.
func CallError(c *Conn, m router.Message) *errors.Error {
	c.t.Helper()
	return decodeError(c.t, c.call(m))
}

func (c *Conn) call(m router.Message) Frame {
	c.t.Helper()
	c.mu.Lock()
	c.calls++
	id := "call-" + strconv.Itoa(c.calls)
	c.mu.Unlock()
	c.SendText(envelope(c.t, m, id))
	return c.take("the answer to "+m.MessageType(), func(f Frame) bool {
		return f.Meta.CorrelationID == id && f.Type != "$ws:rpc-progress"
	})
}

func decode[M router.Message](c *Conn, frame Frame) M {
	c.t.Helper()
	var m M
	if frame.Type != m.MessageType() {
		c.t.Fatalf("routertest: received %s, want %s", frame.Text, m.MessageType())
	}
	if len(frame.Payload) == 0 {
		return m
	}
	if err := jsonv2.Unmarshal(frame.Payload, &m); err != nil {
		c.t.Fatalf("routertest: decode %s: %v", frame.Text, err)
	}
	return m
}

func decodeError(t testing.TB, frame Frame) *errors.Error {
	t.Helper()
	if frame.Type != "ERROR" && frame.Type != "RPC_ERROR" {
		t.Fatalf("routertest: received %s, want an error", frame.Text)
	}
	var payload struct {
		Code         errors.Code        `json:"code"`
		Message      string             `json:"message"`
		Details      map[string]any     `json:"details"`
		RetryAfterMs rawjson.RawMessage `json:"retryAfterMs"`
	}
	if err := jsonv2.Unmarshal(frame.Payload, &payload); err != nil {
		t.Fatalf("routertest: decode %s: %v", frame.Text, err)
	}
	e := &errors.Error{Code: payload.Code, Message: payload.Message, Details: payload.Details}
	switch ms, err := strconv.ParseInt(string(payload.RetryAfterMs), 10, 64); {
	case err == nil:
		e.RetryAfter = time.Duration(ms) * time.Millisecond
	case string(payload.RetryAfterMs) == "null":
		e.RetryAfter = errors.Never
	}
	return e
}
