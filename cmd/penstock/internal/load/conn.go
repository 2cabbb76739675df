package load

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
)

// A conn is one connection. One goroutine sends, one reads.
type conn struct {
	*run
	ws *websocket.Conn

	mu      sync.Mutex
	pending map[string]time.Time // when the calls without an answer were due, by their correlation ID
	empty   chan struct{}        // closed when there are no such calls; nil unless the sender waits for it
}

// A statusError is a handshake that the server has refused.
type statusError struct {
	code int
	error
}

// Unwrap returns the error of the handshake.
func (e statusError) Unwrap() error { return e.error }

// maxReadBytes bounds a message from the server.
const maxReadBytes = 16 << 20

func (r *run) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, r.URL, &websocket.DialOptions{HTTPHeader: r.Header})
	if err != nil {
		if resp != nil {
			return nil, statusError{resp.StatusCode, err}
		}
		return nil, err
	}
	ws.SetReadLimit(maxReadBytes)
	return &conn{run: r, ws: ws, pending: map[string]time.Time{}}, nil
}

// load sends the calls of a connection until ctx is done, and then waits for answers.
func (c *conn) load(ctx context.Context, index, conns int) {
	closed := make(chan struct{})
	go func() { defer close(closed); c.read() }()
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { <-closed; cancel() }()
	n := 0
	for ; c.send(sending, index, n, conns); n++ {
		continue
	}
	for ; ; n++ { // calls that were due, but whose connection was lost or blocked
		_, due := c.due(index, n, conns)
		if <-ctx.Done(); due.After(time.Now()) || !due.Before(c.end) {
			break
		}
		c.count(due, func(r *Report) { r.NotSent++ })
	}
	timeout := time.NewTimer(c.Timeout)
	defer timeout.Stop()
	select {
	case <-c.answered():
	case <-closed:
	case <-timeout.C:
	}
	_ = c.ws.CloseNow()
	<-closed
	for _, due := range c.pending {
		c.count(due, func(r *Report) { r.Unanswered++ })
	}
}

// send sends call number n of the connection when it is due. It returns false if it has sent nothing.
func (c *conn) send(ctx context.Context, index, n, conns int) bool {
	number, due := c.due(index, n, conns)
	if !due.Before(c.end) || !sleepUntil(ctx, due) {
		return false
	}
	id := strconv.Itoa(n)
	payload := strings.NewReplacer("{{n}}", strconv.FormatInt(number, 10), "{{conn}}", strconv.Itoa(index)).Replace(c.Payload)
	c.mu.Lock()
	c.pending[id] = due
	c.mu.Unlock()
	text := fmt.Appendf(nil, `{"type":%q,"meta":{"correlationId":%q},"payload":%s}`, c.Type, id, payload)
	writing, cancel := context.WithTimeout(context.Background(), c.Timeout) // the end of ctx would close the connection, and lose answers
	defer cancel()
	if err := c.ws.Write(writing, websocket.MessageText, text); err != nil {
		c.mu.Lock()
		delete(c.pending, id)
		c.mu.Unlock()
		return false
	}
	c.count(due, func(r *Report) { r.Sent++ })
	return true
}

// answered returns a channel that is closed when no call waits for an answer. No call may be sent
// after it.
func (c *conn) answered() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.empty = make(chan struct{})
	if len(c.pending) == 0 {
		close(c.empty)
	}
	return c.empty
}

// An envelope is a message of the server, as far as the load reads it.
type envelope struct {
	Type    string
	Meta    struct{ CorrelationID string }
	Payload json.RawMessage
}

// read reads until the connection ends.
func (c *conn) read() {
	for {
		_, text, err := c.ws.Read(context.Background())
		now := time.Now()
		if err != nil {
			if now.Before(c.end) {
				c.lost(err)
			}
			return
		}
		var e envelope
		if json.Unmarshal(text, &e) == nil && e.Meta.CorrelationID != "" && !strings.HasPrefix(e.Type, "$ws:") {
			c.answer(&e, now)
		}
	}
}

func (c *conn) lost(err error) {
	code := int(websocket.CloseStatus(err))
	if code < 0 {
		code = 1006
	}
	c.count(time.Now(), func(r *Report) { r.Lost[code]++ })
}

func (c *conn) answer(e *envelope, now time.Time) {
	c.mu.Lock()
	due, ok := c.pending[e.Meta.CorrelationID]
	delete(c.pending, e.Meta.CorrelationID)
	if c.empty != nil && ok && len(c.pending) == 0 {
		close(c.empty)
	}
	c.mu.Unlock()
	switch {
	case !ok:
	case e.Type == "RPC_ERROR":
		var rejection struct {
			Code         errors.Code
			RetryAfterMs int64
		}
		_ = json.Unmarshal(e.Payload, &rejection) // an error without a code counts as one
		c.count(due, func(r *Report) {
			r.Rejected[string(rejection.Code)]++
			r.RetryAfter = max(r.RetryAfter, time.Duration(rejection.RetryAfterMs)*time.Millisecond)
		})
	default:
		c.count(due, func(r *Report) { r.Answered++; c.latencies.add(now.Sub(due)) })
	}
}
