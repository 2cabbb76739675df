package fallback

import (
	"bufio"
	"context"
	"math"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/wsframe"
)

const (
	// windowBytes of events may be without an acknowledgment. Then the pipe is not read.
	windowBytes = 64 << 10

	// readBytes is read from the pipe at once. A payload is read into its own memory.
	readBytes = 1 << 10

	// codeAbnormal is that of a connection that ended without a close frame (RFC 6455, section 7.4.1).
	codeAbnormal = 1006
)

// A conn is a connection of this node.
type conn struct {
	server *Server
	client netip.Prefix // that has opened it
	secret secret
	pipe   net.Conn // the router has the other end

	// turn, of capacity 1, is held while an up with messages is handled. lastSeq belongs to its holder.
	turn    chan struct{}
	waiting atomic.Bool // another up waits for turn
	lastSeq uint64

	writing chan struct{} // of capacity 1, is held while the pipe is written: a lock that virtual time understands

	room chan struct{} // of capacity 1: something has left for the client, or it has acknowledged something

	mu       sync.Mutex
	events   []event // without an acknowledgment
	acked    uint64  // ID of the event before them
	sent     uint64  // ID of the last event that another node has sent
	bytes    int     // their size
	ended    bool    // the last event is in events, or is acknowledged
	endSent  bool    // the last event was sent to the client, or to the node that sends it
	lost     bool    // the client has gone, or the end is long ago
	closing  bool    // the client has closed the connection without a seq
	response *response
	timer    *time.Timer // calls expire lostAfter the end of a response; nil before the first one
	pinged   *time.Timer // calls lose if the client does not answer a ping; nil if none is open
}

// A response sends events, or has just ended.
type response struct {
	id   uint64        // of the down
	open bool          // guarded by conn.mu
	wake chan struct{} // of capacity 1: there are events, or another response
}

// newConn returns a connection that a response of its open is attached to.
func newConn(s *Server, client netip.Prefix, pipe net.Conn) (*conn, *response) {
	r := &response{open: true, wake: make(chan struct{}, 1)}
	return &conn{
		server: s, client: client, secret: newSecret(s.node), pipe: pipe,
		turn: make(chan struct{}, 1), writing: make(chan struct{}, 1), room: make(chan struct{}, 1), response: r,
	}, r
}

// read makes events of what the router sends, until the pipe is closed. It sends the subprotocol first, or closes
// opened if the router has not accepted the handshake.
func (c *conn) read(opened chan<- string) {
	buffered := bufio.NewReaderSize(c.pipe, readBytes)
	accepted, err := http.ReadResponse(buffered, nil)
	if err != nil {
		close(opened)
		_ = c.pipe.Close()
		return
	}
	opened <- accepted.Header.Get("Sec-WebSocket-Protocol")
	frames := wsframe.NewReader(buffered, math.MaxInt32, c.ping)
	for {
		c.awaitRoom()
		message, _, err := frames.Append(nil)
		if err != nil {
			c.end(err)
			_ = c.pipe.Close()
			return
		}
		c.add(messageEvent(message))
	}
}

// ping handles a ping of the router. It is answered at once: whether the client is alive is found out here,
// because only an answer of the client itself proves that, and not that a response could be written.
func (c *conn) ping(payload []byte) error {
	pong := wsframe.AppendFrame(nil, wsframe.Client, wsframe.Pong, payload)
	go func() { _, _ = c.Write(pong) }() // not here: the router may wait for this goroutine to read
	c.mu.Lock()
	open := c.pinged != nil
	if !open {
		c.pinged = time.AfterFunc(lostAfter, c.lose)
	}
	c.mu.Unlock()
	if !open {
		c.add(pingEvent())
	}
	return nil
}

// Write sends bytes to the router.
func (c *conn) Write(p []byte) (int, error) {
	c.writing <- struct{}{}
	defer func() { <-c.writing }()
	return c.pipe.Write(p)
}

// heard follows a request of the client.
func (c *conn) heard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pinged != nil {
		c.pinged.Stop()
		c.pinged = nil
	}
}

// end adds the last event, for an error of the pipe, and answers a close frame.
func (c *conn) end(err error) {
	closed := closeData{Code: codeAbnormal}
	frame, answers := errors.AsType[*wsframe.CloseError](err)
	if answers {
		closed = closeData{frame.Code, frame.Reason}
	}
	c.mu.Lock()
	c.addLocked(closeEvent(closed))
	c.ended = true
	c.startTimerLocked()
	if c.pinged != nil {
		c.pinged.Stop()
	}
	forget := c.lost || c.closing
	c.mu.Unlock()
	if forget {
		c.server.remove(c)
	}
	if answers {
		_, _ = c.Write(wsframe.AppendClose(nil, wsframe.Client, frame.Code, ""))
	}
}

// startTimerLocked starts the time after which expire is called.
func (c *conn) startTimerLocked() {
	if c.timer == nil {
		c.timer = time.AfterFunc(lostAfter, c.expire)
	} else {
		c.timer.Reset(lostAfter)
	}
}

// add adds an event.
func (c *conn) add(e event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addLocked(e)
}

func (c *conn) addLocked(e event) {
	c.events = append(c.events, e)
	c.bytes += e.size()
	signal(c.response.wake)
}

// signal sends to a channel of capacity 1, unless it is full.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// awaitRoom waits until the window is not full. A client that receives nothing meanwhile is lost.
func (c *conn) awaitRoom() {
	if !c.full() {
		return
	}
	stalled := max(c.server.config.WriteTimeout, lostAfter)
	timer := time.NewTimer(stalled)
	defer timer.Stop()
	for c.full() {
		select {
		case <-c.room:
			timer.Reset(stalled)
		case <-timer.C:
			c.lose()
		}
	}
}

// full reports whether the router must not be read. If the client is lost, it may be, and read ends.
func (c *conn) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes >= windowBytes && !c.lost
}

// acknowledge forgets events up to an ID. It returns false if there are no such events, or if a response begins behind
// the ID, and what follows has been forgotten.
func (c *conn) acknowledge(id uint64, begins bool) bool {
	c.mu.Lock()
	if id > c.acked+uint64(len(c.events)) || begins && id < c.acked {
		c.mu.Unlock()
		return false
	}
	if id > c.acked {
		n := int(id - c.acked) //nolint:gosec // at most len(c.events)
		for _, e := range c.events[:n] {
			c.bytes -= e.size()
		}
		c.acked = id
		if c.events = slices.Delete(c.events, 0, n); len(c.events) == 0 {
			c.events = nil // an idle connection has no memory for events
		}
		signal(c.room)
	}
	forget := c.ended && len(c.events) == 0
	c.mu.Unlock()
	if forget {
		c.server.remove(c)
	}
	return true
}

// attach begins a response, which ends the one before, or continues that with the ID. It returns nil if another
// one has begun meanwhile.
func (c *conn) attach(id uint64, begin bool) *response {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !begin && c.response.id != id {
		return nil
	}
	signal(c.response.wake)
	c.response = &response{id: id, open: true, wake: make(chan struct{}, 1)}
	if c.timer != nil && !c.ended {
		c.timer.Stop()
	}
	return c.response
}

// sentUpTo follows the events that another node has sent.
func (c *conn) sentUpTo(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id > c.sent {
		c.sent = id
		signal(c.room)
	}
}

// sentEnd follows that the last event was sent.
func (c *conn) sentEnd() {
	c.mu.Lock()
	c.endSent = true
	c.mu.Unlock()
	signal(c.server.changed)
}

// owesEnd reports whether the client has not been sent the last event.
func (c *conn) owesEnd() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.endSent
}

// detach ends a response. From then on, the connection waits for another one.
func (c *conn) detach(r *response) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.open = false
	if c.response == r && !c.ended {
		c.startTimerLocked()
	}
}

// expire forgets a connection whose last response, or which itself, has ended long ago.
func (c *conn) expire() {
	c.mu.Lock()
	expired := c.ended || !c.response.open
	c.mu.Unlock()
	if expired {
		c.lose()
	}
}

// lose ends a connection whose client has gone: it has a code of its own for the router, which keeps the session.
func (c *conn) lose() {
	c.mu.Lock()
	c.lost = true
	c.mu.Unlock()
	c.server.remove(c)
	_ = c.pipe.Close()
	signal(c.room)
}

// next waits for events behind an ID. It returns false if the response has ended because another one has begun, or
// ctx is done.
func (c *conn) next(ctx context.Context, r *response, after uint64, wait time.Duration) (batch, bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		b, current := c.behind(r, after)
		if !current || len(b.text) > 0 || b.end {
			return b, current
		}
		select {
		case <-r.wake:
		case <-timer.C:
			return b, true
		case <-ctx.Done():
			return batch{}, false
		}
	}
}

// behind returns the events behind an ID. current is false if another response has begun.
func (c *conn) behind(r *response, after uint64) (b batch, current bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.response != r {
		return batch{}, false
	}
	after = max(after, c.acked)
	b.last, b.end = c.acked+uint64(len(c.events)), c.ended
	for id := after + 1; id <= b.last; id++ {
		b.text = c.events[id-c.acked-1].append(b.text, id)
	}
	return b, true
}
