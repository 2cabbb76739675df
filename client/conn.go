//go:build !js

package client

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
)

// A conn is one WebSocket connection. Three goroutines belong to it: one reads, one writes, and one
// sends pings. All of them end when the connection does.
type conn struct {
	client *Client
	ws     *websocket.Conn
	kind   websocket.MessageType // of all messages that are sent
	ctx    context.Context       //nolint:containedctx // ends with the connection
	cancel context.CancelFunc
	opened time.Time
	read   atomic.Int64 // nanoseconds from opened to the last message or control frame
	usable time.Time    // when the server had answered the greeting

	wake   chan struct{}      // the writer looks for messages again
	goaway chan time.Duration // the server asks for another connection
	ended  chan struct{}      // closed after err is set
	err    error

	// The client's lock guards the following.
	control     []outgoing // precede the messages of the queue
	info        Connection
	sending     bool                // messages of the queue are sent
	hasSession  bool                // a new one
	acks        bool                // the server confirms messages
	concurrency int                 // calls without an answer that the server permits; 0 if unknown
	openCalls   map[string]struct{} // without an answer, by ID
	toUser      offsets             // of the messages to the user that have arrived
	other       *conn               // that this one replaces or follows, or that replaces this one; nil if that is of no interest
	lost        time.Time
	sizes       sizeLimits
	crowded     bool // the server permits no other call before one of these is answered
}

// userMessageDelay is longer than a message to the user is on its way between nodes: for this time, a new connection may
// receive what the one before has received already.
const userMessageDelay = 5 * time.Second

// offsets are those from first to last. The zero value is none.
type offsets struct{ first, last uint64 }

func (o *offsets) contain(offset uint64) bool {
	return o.last > 0 && offset >= o.first && offset <= o.last
}

func (o *offsets) add(offset uint64) {
	if o.last == 0 {
		o.first = offset
	}
	o.last = max(o.last, offset)
}

// Times of a connection.
const (
	writeTimeout = 10 * time.Second
	pongTimeout  = 10 * time.Second
	closeTimeout = 2 * time.Second
)

// dial opens a connection. The goroutines of the connection call functions of the client.
func (c *Client) dial(ctx context.Context, expired bool) (*conn, error) {
	address, header, err := c.credentials(ctx, expired)
	if err != nil {
		return nil, err
	}
	cn := &conn{client: c, opened: time.Now(), wake: make(chan struct{}, 1), goaway: make(chan time.Duration, 1), ended: make(chan struct{}), openCalls: map[string]struct{}{}, kind: websocket.MessageText}
	ws, resp, err := websocket.Dial(ctx, address, &websocket.DialOptions{
		HTTPClient: c.opts.HTTPClient, HTTPHeader: header, CompressionMode: websocket.CompressionDisabled, Subprotocols: c.opts.subprotocols(),
		OnPingReceived: func(context.Context, []byte) bool { cn.markRead(); return true },
	})
	if err != nil {
		return nil, handshakeError(resp, withoutURL(err))
	}
	if err := c.opts.selected(ws.Subprotocol()); err != nil {
		_ = ws.CloseNow()
		return nil, err
	}
	if c.opts.Codec != nil {
		cn.kind = websocket.MessageBinary
	}
	ws.SetReadLimit(c.opts.MaxReadBytes)
	cn.ws = ws
	cn.ctx, cn.cancel = context.WithCancel(context.Background())
	c.mu.Lock()
	switch last := c.lastConn; {
	case c.topicConn != nil:
		cn.other, c.topicConn.other = c.topicConn, cn
	case last != nil && time.Since(last.lost) < userMessageDelay:
		cn.other = last
	}
	c.lastConn = nil
	c.mu.Unlock()
	var loops sync.WaitGroup
	loops.Go(cn.readLoop)
	loops.Go(cn.writeLoop)
	loops.Go(cn.pingLoop)
	c.goroutines.Go(func() {
		loops.Wait()
		_ = ws.CloseNow()
		close(cn.ended)
		cn.noteOutcome() // of what was sent over it: there is none
	})
	return cn, nil
}

// credentials returns the URL and the header of an attempt, one of them with a token.
func (c *Client) credentials(ctx context.Context, expired bool) (address string, header http.Header, err error) {
	if c.opts.Token == nil {
		return c.url, c.opts.Header, nil
	}
	token, err := c.token(ctx, expired)
	if err != nil || token == "" {
		return c.url, c.opts.Header, err
	}
	if !c.opts.TokenInURL {
		header = http.Header{}
		maps.Copy(header, c.opts.Header)
		header.Set("Authorization", "Bearer "+token)
		return c.url, header, nil
	}
	u, err := url.Parse(c.url)
	if err != nil {
		return "", nil, withoutURL(err)
	}
	q := u.Query()
	q.Set("access_token", token)
	u.RawQuery = q.Encode()
	return u.String(), c.opts.Header, nil
}

// server returns the URL without what may be secret in it.
func (c *Client) server() string {
	u, err := url.Parse(c.url)
	if err != nil {
		return "an invalid URL"
	}
	return u.Scheme + "://" + u.Host + u.Path
}

// checkURL returns an error for a URL with which no attempt to connect can succeed.
func checkURL(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return &errors.Error{Code: errors.FailedPrecondition, Message: "the URL of the server is invalid", Err: withoutURL(err)}
	}
	if !slices.Contains([]string{"ws", "wss", "http", "https"}, u.Scheme) || u.Host == "" {
		return errors.Errorf(errors.FailedPrecondition, "the URL of the server has the scheme %q and the host %q; it must be ws://host or wss://host", u.Scheme, u.Host)
	}
	return nil
}

// withoutURL returns the cause of an error that quotes the URL, which may contain a token.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// token calls Options.Token, and recovers its panic.
func (c *Client) token(ctx context.Context, expired bool) (token string, err error) {
	err = errors.Errorf(errors.Internal, "client: Options.Token has panicked")
	c.guard("Token", func() { token, err = c.opts.Token(ctx, expired) })
	return token, err
}

// handshakeError returns the error of a rejected handshake, which the server describes in the body.
func handshakeError(resp *http.Response, cause error) error {
	if resp == nil || resp.StatusCode == http.StatusSwitchingProtocols {
		return &errors.Error{Code: errors.Unavailable, Message: "the server cannot be reached", Err: cause}
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	failed := &closeError{code: 4000 + resp.StatusCode}
	if json.Valid(body) {
		failed.err = (&envelope{Payload: body}).error()
	}
	if failed.err == nil || errors.CodeOf(failed.err) == errors.Internal {
		failed.err = &errors.Error{Code: errors.Unavailable, Message: "the server has rejected the connection with " + resp.Status, Err: cause}
	}
	if seconds, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 64); err == nil {
		if e, ok := errors.AsType[*errors.Error](failed.err); ok && e.RetryAfter == 0 {
			e.RetryAfter = demanded(seconds, time.Second)
		}
	}
	return failed
}

// A closeError is a close frame, or a rejected handshake as the frame that would have the same meaning.
type closeError struct {
	code int
	err  error
}

func (e *closeError) Error() string {
	return "the connection was closed with " + strconv.Itoa(e.code) + ": " + e.err.Error()
}

func (e *closeError) Unwrap() error { return e.err }

// readError returns the error with which a connection has ended.
func readError(err error) error {
	frame, ok := errors.AsType[websocket.CloseError](err)
	if !ok {
		return &closeError{1006, &errors.Error{Code: errors.Unavailable, Message: "the connection was lost", Err: err}}
	}
	e := &closeError{code: int(frame.Code)}
	if reason := []byte(frame.Reason); len(reason) > 0 && reason[0] == '{' && json.Valid(reason) {
		e.err = (&envelope{Payload: reason}).error()
	} else {
		e.err = &errors.Error{Code: errors.Unavailable, Message: frame.Reason}
	}
	return e
}

// readLoop reads until the connection ends. It is the only one that sets err.
func (cn *conn) readLoop() {
	defer cn.cancel()
	for {
		kind, message, err := cn.ws.Read(cn.ctx)
		if err != nil {
			cn.err = readError(err)
			return
		}
		cn.markRead()
		var e envelope
		if err := cn.parse(kind, message, &e); err != nil {
			cn.client.log(slog.LevelWarn, "the server has sent a message that cannot be decoded", slog.Any("error", err))
			continue
		}
		cn.client.receive(cn, &e, len(message))
	}
}

func (cn *conn) markRead() { cn.read.Store(int64(time.Since(cn.opened))) }

// pingLoop ends the connection if it is silent and a ping is not answered.
func (cn *conn) pingLoop() {
	interval := cn.client.opts.PingInterval
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-cn.ctx.Done():
			return
		}
		if silent := time.Since(cn.opened) - time.Duration(cn.read.Load()); silent < interval {
			timer.Reset(interval - silent)
			continue
		}
		ctx, cancel := context.WithTimeout(cn.ctx, pongTimeout)
		err := cn.ws.Ping(ctx)
		cancel()
		if err != nil {
			_ = cn.ws.CloseNow()
			return
		}
		cn.markRead()
		timer.Reset(interval)
	}
}

// writeLoop writes the messages that the client wants to send on this connection.
func (cn *conn) writeLoop() {
	defer cn.cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		frame, m, wait := cn.client.next(cn)
		if frame != nil {
			ctx, cancel := context.WithTimeout(cn.ctx, writeTimeout)
			err := cn.ws.Write(ctx, cn.kind, frame)
			cancel()
			cn.client.written(m, err)
			if err != nil {
				_ = cn.ws.CloseNow()
				return
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-cn.wake:
		case <-timer.C:
		case <-cn.ctx.Done():
			return
		}
	}
}

// wakeWriter makes the writer look for messages.
func (cn *conn) wakeWriter() { notify(cn.wake) }

// notify sends a value to a channel with a buffer of one, unless it holds one that was not received.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sendControlLocked queues a message of the protocol, which precedes those of the application.
func (cn *conn) sendControlLocked(typ, id string, credit int64, payload []byte) {
	cn.control = append(cn.control, outgoing{typ: typ, id: id, credit: credit, payload: payload})
	cn.wakeWriter()
}

// close begins the close handshake, and ends the connection when it is complete, or at the latest
// after closeTimeout.
func (cn *conn) close(code websocket.StatusCode) {
	stop := time.AfterFunc(closeTimeout, func() { _ = cn.ws.CloseNow() })
	defer stop.Stop()
	_ = cn.ws.Close(code, "")
	<-cn.ended
}

// request sends a call of the protocol on this connection and returns the answer.
func (cn *conn) request(ctx context.Context, m Message, reply any) error {
	cl := newCall(m.MessageType(), replyTypeOf(m))
	cn.start(cl, m)
	select {
	case a := <-cl.answered:
		if a.err != nil {
			return a.err
		}
		return a.decode(reply)
	case <-ctx.Done():
		cn.client.forget(cl)
		return context.Cause(ctx)
	case <-cn.ended:
		cn.client.forget(cl)
		return cn.err
	}
}

// start sends a call of the protocol, without waiting for the answer.
func (cn *conn) start(cl *call, m Message) {
	payload, err := encodePayload(m)
	if err != nil {
		cl.finish(answer{err: err})
		return
	}
	cn.client.mu.Lock()
	defer cn.client.mu.Unlock()
	cn.startLocked(cl, payload)
}

func (cn *conn) startLocked(cl *call, payload []byte) {
	cl.id, cl.conn = cn.client.ids.next(), cn
	cn.client.calls[cl.id] = cl
	cn.openCalls[cl.id] = struct{}{}
	cn.sendControlLocked(cl.typ, cl.id, -1, payload)
}

// settledLocked notes that a call has its answer, or no longer needs one.
func (cn *conn) settledLocked(id string) {
	delete(cn.openCalls, id)
	cn.crowded = false
	cn.noteOutcome()
}

// noteOutcome makes the writer look for messages, because one that was sent has its outcome.
func (cn *conn) noteOutcome() {
	cn.wakeWriter()
	notify(cn.client.outcome)
}

// crowdedWait is how long a call waits that the calls of other connections hold back.
const crowdedWait = 500 * time.Millisecond

// crowdLocked makes calls wait after the server has rejected one because too many are open: until one of this
// connection is answered, or for a while if there is none.
func (cn *conn) crowdLocked(m *outgoing, e *errors.Error, at time.Time) {
	if cn.crowded = len(cn.openCalls) > 0; !cn.crowded {
		m.crowded, m.notBefore = true, at.Add(max(crowdedWait, e.RetryAfter))
	}
}
