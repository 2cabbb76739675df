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

// timeout limits each wait for a message or for the end of the connection.
const timeout = 10 * time.Second

// A Conn is the client side of a connection. It reads continuously and queues
// messages until the test receives them, so a test is a slow client only if it
// calls Pause or Freeze. A Conn is safe for concurrent use, but the functions
// and methods that fail the test must be called from the goroutine that runs the
// test, like [testing.T.FailNow].
type Conn struct {
	t     testing.TB
	ws    *websocket.Conn
	pipe  *pipe
	codec router.Codec // nil for JSON

	declared *declarations // nil if received messages are not compared with them

	mu       sync.Mutex
	received []Frame
	changed  chan struct{}      // closed and replaced when received or end changes
	end      *router.CloseError // nil while the connection is open
	calls    int
	requests map[string]string      // types of the calls and streams of Start, by ID
	handlers map[string]func(Frame) // of calls of the server, by type
	handling sync.WaitGroup         // handlers that have not returned
}

// A Frame is a received message in its encoded form: type, meta and payload of
// the envelope. The Payload of a binary message is in the format of the [Codec],
// or JSON if the message is an error or another one of the protocol, except progress.
type Frame struct {
	Type string `json:"type"`
	Meta struct {
		Timestamp     int64  `json:"timestamp"`
		CorrelationID string `json:"correlationId"`
		TimeoutMs     int64  `json:"timeoutMs"` // of a call of the server; 0 if there is none
	} `json:"meta"`
	Payload rawjson.RawMessage `json:"payload"`

	Text   string `json:"-"` // the whole message, as received
	Binary bool   `json:"-"` // the message is binary
}

func newConn(t testing.TB, ws *websocket.Conn, pipe *pipe, codec router.Codec, declared *declarations) *Conn {
	c := &Conn{t: t, ws: ws, pipe: pipe, codec: codec, declared: declared, requests: map[string]string{}, changed: make(chan struct{})}
	ws.SetReadLimit(-1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.read()
	}()
	t.Cleanup(func() {
		c.Abort()
		<-ended
		c.handling.Wait()
	})
	return c
}

func (c *Conn) read() {
	for {
		typ, text, err := c.ws.Read(context.Background())
		c.mu.Lock()
		if err != nil {
			c.end = &router.CloseError{Code: router.StatusAbnormal}
			if peer, ok := errors.AsType[websocket.CloseError](err); ok {
				c.end = &router.CloseError{Code: router.StatusCode(peer.Code), Reason: peer.Reason}
			}
		} else {
			frame, err := parseFrame(typ, text)
			if err != nil {
				c.t.Errorf("routertest: received %q, which is not an envelope: %v", text, err)
			}
			if err == nil && c.declared != nil {
				if problem := c.declared.problem(frame, c.requests[frame.Meta.CorrelationID]); problem != "" {
					c.t.Errorf("routertest: received %s: %s", frame.Text, problem)
				}
			}
			if !c.handleLocked(frame) {
				c.received = append(c.received, frame)
			}
		}
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Send sends a message without a correlation ID: an event, or a call whose
// answer has no correlation ID either. An error fails the test.
func (c *Conn) Send(m router.Message) {
	c.t.Helper()
	c.send(m, outgoingMeta{})
}

// send sends a message in the format of the connection.
func (c *Conn) send(m router.Message, meta outgoingMeta) {
	c.t.Helper()
	if typ, message := c.encode(m, meta); typ == websocket.MessageBinary {
		c.SendBinary(message)
	} else {
		c.SendText(string(message))
	}
}

// encode encodes a message in the format of the connection.
func (c *Conn) encode(m router.Message, meta outgoingMeta) (websocket.MessageType, []byte) {
	c.t.Helper()
	if c.codec == nil {
		return websocket.MessageText, []byte(encodeText(c.t, m, meta))
	}
	return websocket.MessageBinary, binaryEnvelope(c.t, c.codec, m, meta)
}

// SendText sends text as a WebSocket text message, without any encoding. An error
// fails the test.
func (c *Conn) SendText(text string) {
	c.t.Helper()
	if err := c.ws.Write(context.Background(), websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatalf("routertest: send: %v", err)
	}
}

// outgoing is the envelope of a sent message. The type is the first member, as the
// protocol recommends.
type outgoing struct {
	Type    string         `json:"type"`
	Meta    outgoingMeta   `json:"meta"`
	Payload router.Message `json:"payload"`
}

type outgoingMeta struct {
	Timestamp     int64  `json:"timestamp"`
	CorrelationID string `json:"correlationId,omitempty"`
	TimeoutMs     int64  `json:"timeoutMs,omitzero"`
	Credit        *int64 `json:"credit,omitempty"`
}

func encodeText(t testing.TB, m router.Message, meta outgoingMeta) string {
	t.Helper()
	meta.Timestamp = time.Now().UnixMilli()
	text, err := jsonv2.Marshal(outgoing{Type: m.MessageType(), Meta: meta, Payload: m})
	if err != nil {
		t.Fatalf("routertest: encode %s: %v", m.MessageType(), err)
	}
	return string(text)
}

// Next waits for the next message and returns it. Messages are returned in the
// order in which they arrive. If the connection ends or ten seconds pass, the
// test fails.
func (c *Conn) Next() Frame {
	c.t.Helper()
	return c.take("a message", func(Frame) bool { return true })
}

// take waits for the first message that matches and leaves the others queued.
// Errors describe the message as what.
func (c *Conn) take(what string, matches func(Frame) bool) Frame {
	c.t.Helper()
	expired := time.After(timeout)
	for {
		c.mu.Lock()
		for i, frame := range c.received {
			if matches(frame) {
				c.removeLocked(i)
				c.mu.Unlock()
				return frame
			}
		}
		end, changed := c.end, c.changed
		c.mu.Unlock()
		if end != nil {
			c.t.Fatalf("routertest: connection ended while waiting for %s: %v", what, end)
		}
		select {
		case <-changed:
		case <-expired:
			c.t.Fatalf("routertest: %s did not arrive within %v", what, timeout)
		}
	}
}

// removeLocked takes a message out of the queue.
func (c *Conn) removeLocked(i int) {
	if i == 0 { // usually; copying the rest for each message would take quadratic time
		c.received[0] = Frame{}
		c.received = c.received[1:]
		return
	}
	c.received = append(c.received[:i:i], c.received[i+1:]...)
}

// Pending returns the number of messages that have arrived and that the test has
// not received yet.
func (c *Conn) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.received)
}

// Close closes the connection with status 1000, like a browser's
// WebSocket.close().
func (c *Conn) Close() { c.CloseWith(router.StatusNormal, "") }

// CloseWith closes the connection with a status code and a reason of at most 123
// bytes.
func (c *Conn) CloseWith(code router.StatusCode, reason string) {
	_ = c.ws.Close(websocket.StatusCode(code), reason)
}

// Abort closes the connection without a close frame, like a client process that
// is killed.
func (c *Conn) Abort() {
	_ = c.pipe.Close()
	_ = c.ws.CloseNow()
}

// Freeze permanently discards everything that the server sends, like a client
// whose host is unreachable: neither pings nor close frames are answered.
func (c *Conn) Freeze() { c.pipe.frozen.Store(true) }

// Pause stops reading until Resume is called, like a slow consumer. A read that
// has already begun may still receive one message.
func (c *Conn) Pause() {
	c.pipe.mu.Lock()
	defer c.pipe.mu.Unlock()
	if c.pipe.paused == nil {
		c.pipe.paused = make(chan struct{})
	}
}

// Resume undoes Pause. Without a Pause it does nothing.
func (c *Conn) Resume() {
	c.pipe.mu.Lock()
	defer c.pipe.mu.Unlock()
	if c.pipe.paused == nil {
		return
	}
	close(c.pipe.paused)
	c.pipe.paused = nil
}

// Closed waits for the end of the connection and returns the code and the reason
// of the close frame, or [router.StatusAbnormal] if there was none. After ten
// seconds the test fails.
func (c *Conn) Closed() router.CloseError {
	c.t.Helper()
	expired := time.After(timeout)
	for {
		c.mu.Lock()
		end, changed := c.end, c.changed
		c.mu.Unlock()
		if end != nil {
			return *end
		}
		select {
		case <-changed:
		case <-expired:
			c.t.Fatalf("routertest: connection was not closed within %v", timeout)
		}
	}
}

// Receive waits for the next message and decodes it as an M. A message of another
// type fails the test.
func Receive[M router.Message](c *Conn) M {
	c.t.Helper()
	return decode[M](c, c.Next())
}

// ReceiveError waits for the next message, which must be an error (ERROR or
// RPC_ERROR), and returns it. Any other message fails the test.
func ReceiveError(c *Conn) *errors.Error {
	c.t.Helper()
	return decodeError(c.t, c.Next())
}

// Call sends a message as a call, waits for its answer and decodes it as a Reply.
// An error fails the test. Progress and other messages that arrive before the
// answer remain queued.
func Call[Reply router.Message](c *Conn, m router.Message) Reply {
	c.t.Helper()
	return decode[Reply](c, c.call(m))
}

// CallError sends a message as a call, waits for its answer, which must be an
// error, and returns it. A reply fails the test.
func CallError(c *Conn, m router.Message) *errors.Error {
	c.t.Helper()
	return decodeError(c.t, c.call(m))
}

func (c *Conn) call(m router.Message) Frame {
	c.t.Helper()
	return Start(c, m).answerFrame()
}

func decode[M router.Message](c *Conn, frame Frame) M {
	c.t.Helper()
	m, target := newMessage[M]()
	if want := (*m).MessageType(); frame.Type != want {
		c.t.Fatalf("routertest: received %s, want %s", frame.Text, want)
	}
	if err := c.unmarshal(frame, target); err != nil {
		c.t.Fatalf("routertest: decode %s: %v", frame.Text, err)
	}
	return *m
}

// decodePayload decodes a value that has no message type.
func decodePayload[T any](c *Conn, frame Frame) T {
	c.t.Helper()
	var v T
	if err := c.unmarshal(frame, &v); err != nil {
		c.t.Fatalf("routertest: decode %s: %v", frame.Text, err)
	}
	return v
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
	e := &errors.Error{Code: payload.Code, Message: payload.Message}
	if payload.Details != nil {
		e.Details = payload.Details
	}
	switch ms, err := strconv.ParseInt(string(payload.RetryAfterMs), 10, 64); {
	case err == nil:
		e.RetryAfter = time.Duration(ms) * time.Millisecond
	case string(payload.RetryAfterMs) == "null":
		e.RetryAfter = errors.Never
	}
	return e
}
