package rawclient

import (
	"bufio"
	"encoding/json"
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"time"
)

// Phases of the greeting of a connection.
const (
	notGreeted = iota
	greeting   // the server may have received it
	greeted
)

// A conn is one connection. Client.mu guards what is not said to belong to the reader.
type conn struct {
	c  *Client
	n  int
	nc net.Conn
	r  *bufio.Reader // of conn.Read; the reader's

	deflation *deflation // nil: nothing is compressed. What is received is the reader's

	out      [][]byte
	wake     chan struct{} // has room for one
	done     chan struct{} // closed when the connection has ended
	cutRead  int           // bytes until the connection is cut; negative: never
	cutWrite int

	greet     int
	resuming  string // the ID of $ws:resume while it has no answer
	resumes   bool   // it is sent again, because the server could not read the session
	welcome   welcome
	open      map[string]*call  // without a final answer
	used      map[string]string // the state of every ID that the client has used: "" or why no answer may follow
	asked     map[string]string // the same for the IDs of calls of the server
	garbage   int               // messages that must be refused and are not yet
	anonymous int               // messages whose refusal has no ID, less the refusals
	beats     int
	pings     []string
	closed4   bool // a close frame was sent
	leaving   bool // closes when its calls are answered
	acts      int  // messages of the application that were sent
}

// A call is a message with an ID that may be answered.
type call struct {
	*Outcome

	event    bool // an event: only an error answers it
	ack      bool
	stream   bool
	credits  int64 // granted and not used; negative: not limited
	size     int
	acts     int       // conn.acts when it was sent
	deadline time.Time // zero: none
	topic    *topic    // of $ws:subscribe and $ws:unsubscribe
	request  []subscription
}

func newConn(c *Client, nc net.Conn, n int) *conn {
	k := &conn{
		c: c, n: n, nc: nc, wake: make(chan struct{}, 1), done: make(chan struct{}), cutRead: -1, cutWrite: -1,
		open: map[string]*call{}, used: map[string]string{}, asked: map[string]string{},
	}
	k.welcome.PingIntervalMs, k.welcome.PongTimeoutMs = 25_000, 10_000
	k.r = bufio.NewReader(k)
	return k
}

func (k *conn) fail(format string, args ...any) {
	k.c.cfg.Report("connection %d: "+format, append([]any{k.n}, args...)...)
}

// Read reads from the network. It waits while the client pauses, cuts the connection where a verb says
// so, and pings a server from which nothing has arrived, because the server does not ping a client
// that sends.
func (k *conn) Read(b []byte) (int, error) {
	for pinged := false; ; pinged = true {
		k.waitPause()
		k.c.mu.Lock()
		wait := time.Duration(k.welcome.PingIntervalMs) * time.Millisecond
		if pinged {
			wait = time.Duration(k.welcome.PongTimeoutMs) * time.Millisecond
		}
		limit := k.cutRead
		k.c.mu.Unlock()
		if limit == 0 {
			_ = k.nc.Close()
			return 0, net.ErrClosed
		}
		if limit > 0 {
			b = b[:min(len(b), limit)]
		}
		_ = k.nc.SetReadDeadline(time.Now().Add(wait)) // a closed connection fails below
		n, err := k.nc.Read(b)
		k.c.mu.Lock()
		if k.cutRead > 0 {
			k.cutRead = max(0, k.cutRead-n)
		}
		k.c.mu.Unlock()
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) || pinged {
			return n, err
		}
		k.ping()
	}
}

func (k *conn) waitPause() {
	for {
		k.c.mu.Lock()
		wait := time.Until(k.c.pauseUntil)
		k.c.mu.Unlock()
		if wait <= 0 {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-k.c.ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (k *conn) ping() {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	k.pingLocked()
}

func (k *conn) pingLocked() {
	data := "p" + strconv.Itoa(len(k.pings))
	k.pings = append(k.pings, data)
	k.writeLocked(appendFrame(nil, opPing, []byte(data)))
}

func (k *conn) pong(data string) {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	if !slices.Contains(k.pings, data) {
		k.fail("a pong answers no ping: %q", data)
	}
}

func (k *conn) write(frame []byte) {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	k.writeLocked(frame)
}

// writeLocked queues bytes for the writer, because the reader must never wait for the server to read.
func (k *conn) writeLocked(frame []byte) {
	k.out = append(k.out, frame)
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

func (k *conn) writeLoop() {
	for {
		k.c.mu.Lock()
		out := slices.Concat(k.out...)
		k.out = nil
		cut := k.cutWrite >= 0 && len(out) >= k.cutWrite
		if cut {
			out = out[:k.cutWrite]
		} else if k.cutWrite > 0 {
			k.cutWrite -= len(out)
		}
		k.c.mu.Unlock()
		if len(out) > 0 {
			if _, err := k.nc.Write(out); err != nil {
				return
			}
		}
		if cut {
			_ = k.nc.Close()
			return
		}
		select {
		case <-k.wake:
		case <-k.done:
			return
		}
	}
}

// closeWith starts the closing handshake, and ends the connection 5 seconds later if the server has not.
// Client.mu is held.
func (k *conn) closeWith(code int) {
	if k.closed4 {
		return
	}
	k.closed4 = true
	k.writeLocked(appendFrame(nil, opClose, []byte{byte(code >> 8), byte(code)})) //nolint:gosec // a close code has 16 bits
	k.c.done.Go(func() {
		timer := time.NewTimer(5 * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-k.done:
		}
		_ = k.nc.Close()
	})
}

// finish ends what the connection has begun. Calls without an answer are lost.
func (k *conn) finish(ending) {
	k.c.mu.Lock()
	defer k.c.mu.Unlock()
	_ = k.nc.Close()
	close(k.done)
	k.c.conns = slices.DeleteFunc(k.c.conns, func(other *conn) bool { return other == k })
	for id, o := range k.open {
		if !o.event {
			o.Done, o.Lost, o.At = true, true, time.Now()
		}
		delete(k.open, id)
		for _, asked := range o.request { // if k is current, disconnectedLocked forgets all of them
			t := k.c.topic(asked.Topic)
			t.pending = max(0, t.pending-1)
		}
	}
	if k.c.cur == k {
		k.c.disconnectedLocked()
	}
}

// leaveLocked closes a connection that another one has replaced, once its calls are answered.
func (k *conn) leaveLocked() {
	if !k.leaving {
		return
	}
	for _, o := range k.open {
		if !o.event {
			return
		}
	}
	k.closeWith(1000)
}

// send encodes and sends a message with an ID, and waits for its answer.
func (k *conn) send(kind string, payload any, m map[string]any, o *call) string {
	k.c.nextID++
	id := "c" + strconv.Itoa(k.c.nextID)
	if m == nil {
		m = map[string]any{}
	}
	m["correlationId"] = id
	o.Outcome = &Outcome{ID: id, Type: kind, Conn: k.n, Sent: time.Now()}
	o.size = k.sendMeta(kind, payload, m)
	o.acts = k.acts
	k.c.outcomes[id], k.open[id], k.used[id] = o.Outcome, o, ""
	return id
}

// sendMeta sends a message, and returns its size.
func (k *conn) sendMeta(kind string, payload any, m map[string]any) int {
	message := struct {
		Type    string         `json:"type"`
		Meta    map[string]any `json:"meta,omitempty"`
		Payload any            `json:"payload,omitempty"`
	}{kind, m, payload}
	if !reserved(kind) {
		k.acts++
	}
	raw, err := json.Marshal(message)
	if err != nil {
		panic(err) // a payload of the workload that is not JSON
	}
	k.writeLocked(k.appendMessage(nil, raw))
	return len(raw)
}
