//go:build !js

package fallback

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// maxBatchBytes bounds the messages of an up, unless it is a single one. With its first line, the body stays below
// the 64 KiB that some proxies permit.
const maxBatchBytes = 64_000

// When the client acknowledges events with a request of its own.
const (
	ackBytes = 16 << 10
	ackAfter = 5 * time.Second
)

var (
	errLost  = errors.New("fallback: the server does not know the connection any more")
	errEnded = errors.New("fallback: the client has closed the connection")
)

// A conn is a connection over HTTP. Five goroutines belong to it, which end when ctx does: readPipe
// reads what the client writes to its end of the pipe; sendMessages, acknowledge and receive send
// one kind of request each; and returnToWebSocket tries WebSocket. ctx ends with the connection,
// and its cause says why; then the pipe is closed.
type conn struct {
	t      *roundTripper
	mode   string // used by receive; of the response of a down
	header http.Header
	ctx    context.Context //nolint:containedctx // see above
	cancel context.CancelCauseFunc
	pipe   net.Conn // our end
	secret string

	// writeMu is held while frames are written to the pipe, which takes until the client reads
	// them. It guards the following, and is acquired before mu.
	writeMu   sync.Mutex
	frame     []byte // memory
	wroteLast bool   // a close frame

	mu      sync.Mutex
	waiting []byte // messages for the next up, each behind a line break
	spare   []byte // memory for waiting
	closing *closing
	changed chan struct{} // receives a value when there is something to send
	room    chan struct{} // receives a value when nothing waits

	received int64         // ID of the last event that the client has; only receive changes it
	owed     int           // bytes of events that are not acknowledged
	ackTimer *time.Timer   // signals ackDue; runs while owed is not 0
	ping     []byte        // payload of a ping of the client
	pinged   bool          // it has no answer
	ackDue   chan struct{} // receives a value when events must be acknowledged, or a ping answered
}

func newConn(ctx context.Context, cancel context.CancelCauseFunc, t *roundTripper, mode string, h http.Header) *conn {
	return &conn{
		t: t, mode: mode, header: h, ctx: ctx, cancel: cancel,
		changed: make(chan struct{}, 1), room: make(chan struct{}, 1), ackDue: make(chan struct{}, 1),
	}
}

// run begins with the response to the open.
func (c *conn) run(r *response) {
	c.ackTimer = time.AfterFunc(ackAfter, func() { signal(c.ackDue) })
	c.ackTimer.Stop()
	c.t.mu.Lock()
	cause := c.t.cause
	c.t.mu.Unlock()
	if c.mode == modePoll {
		c.t.report(HTTPPoll, cause)
	} else {
		c.t.report(HTTPStream, cause)
	}
	go c.readPipe()
	go c.sendMessages()
	go c.acknowledge()
	go c.receive(r)
	go c.returnToWebSocket()
}

// signal sends a value unless there is one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// readPipe reads messages of the client until it closes its end.
func (c *conn) readPipe() {
	defer c.cancel(errEnded)
	r := wsframe.NewReader(bufio.NewReader(c.pipe), maxEventBytes, c.queuePing)
	var message []byte
	for {
		var op wsframe.Opcode
		var err error
		message, op, err = r.Append(message[:0])
		if closed, ok := errors.AsType[*wsframe.CloseError](err); ok {
			c.queueClose(closed)
			_, _ = io.Copy(io.Discard, c.pipe)
			return
		}
		switch {
		case err != nil:
			return
		case op != wsframe.Text:
			c.closeClient(codeUnsupported, "messages over HTTP are text")
		case !c.queue(message):
			return
		}
	}
}

// queue waits until there is room for a message, and adds it to those that wait. It returns false
// if the connection has ended.
func (c *conn) queue(message []byte) bool {
	for {
		c.mu.Lock()
		if len(c.waiting) == 0 || len(c.waiting)+1+len(message) <= maxBatchBytes {
			break
		}
		c.mu.Unlock()
		select {
		case <-c.room:
		case <-c.ctx.Done():
			return false
		}
	}
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, '\n')
	for _, b := range message {
		if b == '\n' || b == '\r' { // white space of JSON
			b = ' '
		}
		c.waiting = append(c.waiting, b)
	}
	signal(c.changed)
	return true
}

// queueClose lets the last up close the connection, unless it is the client's answer to a close
// frame.
func (c *conn) queueClose(closed *wsframe.CloseError) {
	c.writeMu.Lock()
	answers := c.wroteLast
	c.writeMu.Unlock()
	if answers {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = &closing{closed.Code, closed.Reason}
	if closed.Code == wsframe.NoStatus {
		c.closing.Code = 0
	}
	signal(c.changed)
}

// queuePing lets acknowledge answer a ping.
func (c *conn) queuePing(payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ping, c.pinged = append(c.ping[:0], payload...), true
	signal(c.ackDue)
	return nil
}

// write writes a frame to the client, unless a close frame was written.
func (c *conn) write(op wsframe.Opcode, payload []byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.wroteLast {
		return nil
	}
	c.frame = wsframe.AppendFrame(c.frame[:0], wsframe.Server, op, payload)
	_, err := c.pipe.Write(c.frame)
	if cap(c.frame) > maxBatchBytes {
		c.frame = nil
	}
	return err
}

// closeClient writes a close frame to the client, which then closes its end.
func (c *conn) closeClient(code int, reason string) {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.wroteLast {
		return
	}
	c.wroteLast = true
	_, _ = c.pipe.Write(wsframe.AppendClose(nil, wsframe.Server, code, reason))
}
