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
	ws      *websocket.Conn
	written time.Time      // when the latest message had been written; only the sender uses it
	control chan *envelope // answers to calls of the load itself
	closed  chan struct{}  // closed when nothing more is read

	mu      sync.Mutex
	open    bool
	err     error              // why reading has ended
	pending map[string]message // those without an answer, by their correlation ID
	empty   chan struct{}      // closed when there are none; nil unless the load waits for it
	lost    time.Time          // when the open connection has ended

	*slot
}

// A slot is what a connection has in common with those that replace it.
type slot struct {
	number int // in the order in which connections are opened
	turn   int // in which it sends; set before the first message is sent

	receiving sync.Mutex
	seen      bitset // numbers of the marked messages that were received
	offsets   offsets
}

// A message is one that was sent.
type message struct {
	number int64
	due    time.Time
}

// A closedError is the end of a connection that was not open yet.
type closedError struct{ code int }

func (e closedError) Error() string {
	return fmt.Sprintf("the server has closed the connection with code %d before it was open", e.code)
}

func newConn(r *run, ws *websocket.Conn, s *slot) *conn {
	return &conn{run: r, ws: ws, slot: s, control: make(chan *envelope, 8), closed: make(chan struct{}), pending: map[string]message{}}
}

// markOpen returns an error if the connection has ended already. If it ends later, it is lost.
func (c *conn) markOpen() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.open = true
	c.live.Add(1)
	return nil
}

// sendFrom sends the messages of a connection from number n on that are due before the end, until ctx
// is done or the connection is lost. It returns the number of the first one that it has not sent.
func (c *conn) sendFrom(ctx context.Context, n int) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	for c.send(ctx, n) {
		n++
	}
	return n
}

// send sends message n of the connection when it is due. It returns false if it has sent nothing.
func (c *conn) send(ctx context.Context, n int) bool {
	number, due := c.due(n)
	if !due.Before(c.end) || !sleepUntil(ctx, due) {
		return false
	}
	late := time.Since(later(due, c.written)) // a connection that the server blocks does not make the load late
	id := strconv.FormatInt(number, 10)
	payload := c.payload.fill(number, c.number, markOf(c.reach, number))
	c.mu.Lock()
	c.pending[id] = message{number, due}
	c.mu.Unlock()
	ack := ""
	if c.Event {
		ack = `,"ack":true`
	}
	text := fmt.Appendf(nil, `{"type":%q,"meta":{"correlationId":%q%s},"payload":%s}`, c.Type, id, ack, payload)
	writing, cancel := context.WithTimeout(context.Background(), c.Timeout) // the end of ctx would close the connection, and lose answers
	defer cancel()
	if err := c.ws.Write(writing, websocket.MessageText, text); err != nil {
		c.mu.Lock()
		delete(c.pending, id)
		c.mu.Unlock()
		return false
	}
	c.written = time.Now()
	c.count(due, func(r *Report, s *step) { r.Sent++; s.due++; c.lateness.add(late) })
	return true
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// awaitAnswers waits until no message waits for an answer. No message may be sent after it.
func (c *conn) awaitAnswers(ctx context.Context) {
	c.mu.Lock()
	c.empty = make(chan struct{})
	if len(c.pending) == 0 {
		close(c.empty)
	}
	empty := c.empty
	c.mu.Unlock()
	select {
	case <-empty:
	case <-c.closed:
	case <-ctx.Done():
	}
}

// countUnanswered counts the messages without an answer, once. Nothing more may be read.
func (c *conn) countUnanswered() {
	defer clear(c.pending)
	for _, m := range c.pending {
		c.count(m.due, func(r *Report, _ *step) { r.Unanswered++ })
	}
}

// An envelope is a message of the server, as far as the load reads it.
type envelope struct {
	Type string
	Meta struct {
		CorrelationID string
		Topic         string
		Offset        int64
	}
	Payload json.RawMessage
}

// A rejection is the payload of an error.
type rejection struct {
	Code         errors.Code
	Message      string
	RetryAfterMs int64
}

// rejection returns the payload. An error that cannot be read counts as one without a code.
func (e *envelope) rejection() (r rejection) {
	_ = json.Unmarshal(e.Payload, &r)
	return r
}

// read reads until the connection ends.
func (c *conn) read() {
	defer close(c.closed)
	for {
		_, text, err := c.ws.Read(context.Background())
		now := time.Now()
		if err != nil {
			c.ended(err)
			return
		}
		var e envelope
		if json.Unmarshal(text, &e) != nil {
			continue
		}
		switch id := e.Meta.CorrelationID; {
		case id == "":
			if c.reach != nil {
				c.reach.receive(c, &e, text, now)
			}
		case strings.HasPrefix(id, controlID):
			select {
			case c.control <- &e:
			default: // late answers that nothing waits for
			}
		case e.Type != "$ws:rpc-progress":
			c.answer(&e, now)
		}
	}
}

func (c *conn) ended(err error) {
	code := int(websocket.CloseStatus(err))
	if code < 0 {
		code = 1006
	}
	c.mu.Lock()
	c.err = closedError{code}
	lost := c.open && !c.closing.Load()
	if c.open {
		c.lost = time.Now()
		c.live.Add(-1)
	}
	c.mu.Unlock()
	if lost {
		c.run.mu.Lock()
		defer c.run.mu.Unlock()
		c.report.Lost[code]++
	}
}
