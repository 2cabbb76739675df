package rawclient

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A Config is how a client connects, and what it asks for.
type Config struct {
	Dial  func(ctx context.Context) (net.Conn, error)
	Token func() string // the token of the next handshake; nil: none
	Rand  *rand.Rand    // the jitter of the backoff. The client uses it alone

	// Deflate is the offer of permessage-deflate. Empty: none.
	Deflate string

	Greet   bool // send $ws:hello on every connection
	Session bool // ask for a session, and resume it on the next connection; requires Greet
	Trace   bool // ask for the trace context of calls of the server; requires Greet

	Take Grant // a session of another client to resume; requires Greet and Session

	// Answer answers a call of the server with a type and a payload; with an empty type, it is left without
	// an answer. It must not call the client. Nil: every call is answered with UNIMPLEMENTED.
	Answer func(kind string, payload json.RawMessage) (replyKind string, reply any)
	// Report receives each violation of the protocol. It must not call the client.
	Report func(format string, args ...any)
}

// A Grant is a session as its client knows it.
type Grant struct{ Token, MemberID string }

// A Delivery is a message of the application that is neither an answer nor a call. Topic is nil for
// one without a mark of its topic, and Position is zero for one without a position.
type Delivery struct {
	Conn     int // the number of the connection, from 1
	Topic    *string
	Position Position
	State    bool // part of the current state with which a subscription begins
	Type     string
	Payload  json.RawMessage
	At       time.Time
}

// A Notice is a message of the protocol that changes what the client knows, or "open", "close" or
// "stop" of a connection.
type Notice struct {
	Conn    int
	Kind    string // the type of the message; "topic" for a topic of $ws:resumed
	Topic   string
	Payload json.RawMessage // nil for a close
	Code    int             // of a close
	Reason  string          // of a close
	At      time.Time
}

// An Outcome is a call, a stream, or an event with an ID, and what became of it.
type Outcome struct {
	ID       string
	Type     string
	Conn     int
	Sent     time.Time
	Acked    bool
	Progress []json.RawMessage
	Done     bool // answered, or Lost
	Lost     bool // the connection ended first: the message may have been handled
	Reply    string
	Payload  json.RawMessage
	Err      *Error
	At       time.Time // of the answer
}

// A Client is a client for one bubble. Its methods may be called concurrently.
type Client struct {
	cfg    Config
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu         sync.Mutex
	cur        *conn   // where verbs act; nil while there is no connection
	conns      []*conn // open ones: cur, and one that it replaces
	opened     int
	moving     bool // another connection is being opened while cur lasts
	pauseUntil time.Time
	topics     map[string]*topic
	token      string // of the session; empty if there is none
	memberID   string
	nextID     int
	deliveries []Delivery
	notices    []Notice
	outcomes   map[string]*Outcome
}

// New returns a client, which connects, and connects again, until Close.
func New(cfg Config) *Client {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{
		cfg: cfg, ctx: ctx, cancel: cancel, topics: map[string]*topic{}, outcomes: map[string]*Outcome{},
		token: cfg.Take.Token, memberID: cfg.Take.MemberID,
	}
	c.done.Go(c.run)
	return c
}

// Close closes the connections with the code, 1000 or 1001, and returns when nothing of the client runs
// any more. Whatever the server does, that is within 5 seconds.
func (c *Client) Close(code int) {
	c.mu.Lock()
	for _, k := range c.conns {
		k.closeWith(code)
	}
	c.mu.Unlock()
	c.cancel()
	c.done.Wait()
}

// run opens connections and reads them, until the client is closed, a code says that it must stop, or
// another goroutine has replaced the connection.
func (c *Client) run() {
	var b backoff
	for c.ctx.Err() == nil {
		k, end := c.open()
		began := time.Now()
		if k != nil {
			got := k.read()
			end = &got
			k.finish(got)
		}
		open := time.Duration(0)
		if k != nil {
			open = time.Since(began)
		}
		delay, again := c.again(k, *end, open, &b)
		if !again || !c.sleep(delay) {
			return
		}
	}
}

// again reports whether run has to open another connection after the end of k, which may be nil, and when.
func (c *Client) again(k *conn, end ending, open time.Duration, b *backoff) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delay, stop := b.next(end, open, c.jitter)
	n := 0
	if k != nil {
		n = k.n
	}
	c.notices = append(c.notices, Notice{Conn: n, Kind: "close", Code: end.code, Reason: end.reason, At: time.Now()})
	if k != nil && c.cur != k {
		return 0, false
	}
	c.cur = nil
	if k != nil && c.moving {
		return 0, false // the goroutine that moves connects
	}
	if stop {
		c.notices = append(c.notices, Notice{Conn: n, Kind: "stop", Code: end.code, At: time.Now()})
	}
	return delay, !stop
}

// jitter returns a random time below the limit. Client.mu is held.
func (c *Client) jitter(limit time.Duration) time.Duration {
	return time.Duration(c.cfg.Rand.Int64N(int64(limit)))
}

func (c *Client) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// open dials, and makes the connection the current one.
func (c *Client) open() (*conn, *ending) {
	nc, err := c.cfg.Dial(c.ctx)
	if err != nil {
		return nil, &ending{code: 1006}
	}
	c.mu.Lock()
	c.opened++
	k := newConn(c, nc, c.opened)
	c.mu.Unlock()
	token := ""
	if c.cfg.Token != nil {
		token = c.cfg.Token()
	}
	if end := k.handshake(c.ctx, token, c.cfg.Deflate); end != nil {
		_ = nc.Close()
		return nil, end
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		_ = nc.Close()
		return nil, &ending{code: 1006}
	}
	c.cur, c.moving = k, false
	c.conns = append(c.conns, k)
	c.notices = append(c.notices, Notice{Conn: k.n, Kind: "open", At: time.Now()})
	c.done.Go(k.writeLoop)
	k.start()
	return k, nil
}

// Move opens another connection, as after $ws:goaway, and closes the present one when the session is
// resumed, or the subscriptions are made, and its calls are answered.
func (c *Client) Move() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur == nil || c.moving || c.ctx.Err() != nil {
		return
	}
	c.moving = true
	c.done.Go(c.run)
}

// Deliveries returns what was delivered, in the order of arrival.
func (c *Client) Deliveries() []Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Delivery(nil), c.deliveries...)
}

// Notices returns the notices in the order of arrival.
func (c *Client) Notices() []Notice {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Notice(nil), c.notices...)
}

// Outcome returns what is known of the message with the ID.
func (c *Client) Outcome(id string) Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.outcomes[id]; o != nil {
		copied := *o
		copied.Progress = append([]json.RawMessage(nil), o.Progress...)
		return copied
	}
	return Outcome{}
}

// Outcomes returns what is known of all messages with an ID, in no order.
func (c *Client) Outcomes() []Outcome {
	c.mu.Lock()
	ids := make([]string, 0, len(c.outcomes))
	for id := range c.outcomes {
		ids = append(ids, id)
	}
	c.mu.Unlock()
	all := make([]Outcome, 0, len(ids))
	for _, id := range ids {
		all = append(all, c.Outcome(id))
	}
	return all
}

// A Topic is what the client knows of a topic.
type Topic struct {
	Subscribed bool      // on the present connection
	Position   *Position // up to which it has received everything; nil: it has none
	Members    []Member  // nil unless presence was asked for
}

// Topic returns what the client knows of a topic.
func (c *Client) Topic(name string) Topic {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[name]
	if t == nil {
		return Topic{}
	}
	known := Topic{Subscribed: t.on, Position: t.presentable()}
	if t.members != nil {
		known.Members = []Member{}
	}
	for _, m := range t.members {
		known.Members = append(known.Members, m)
	}
	return known
}

// Grant returns the session that the next connection resumes; its token is empty if there is none.
func (c *Client) Grant() Grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Grant{c.token, c.memberID}
}

// Session returns the member ID of the client, which a session keeps over connections, and whether
// the client has a session.
func (c *Client) Session() (memberID string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.memberID, c.token != ""
}
