package aisdk

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/router"
)

// A conn is the connection of a page.
//
// Goroutines: that of the HTTP request reads; one sends pings; each stream has one, and another
// while it is attached to a run. That of the HTTP request returns after the streams have ended.
type conn struct {
	handler *Handler
	ws      *websocket.Conn
	id      router.Identity
	since   uint32 // the number of the authentication
	connID  string
	ip      netip.Addr
	values  context.Context //nolint:containedctx // of the request; it does not end
	ctx     context.Context //nolint:containedctx // ends when nothing more can be written
	cancel  context.CancelCauseFunc
	unread  chan struct{} // closed when no further frames of the page are handled
	ended   chan struct{}

	writing chan struct{} // of capacity 1, is held while frames are written: a lock that virtual time understands
	writes  atomic.Int64  // odd while a frame is written

	disconnected atomic.Bool // the access of the user has ended: nothing more is written but the close frame

	revocations atomic.Uint32 // how often access to topics has ended; streams that are being opened compare it

	mu       sync.Mutex
	streams  map[string]*stream // by request ID
	running  sync.WaitGroup     // of streams
	draining bool               // no further streams begin
}

// serve serves a connection until it is closed.
func (h *Handler) serve(req *http.Request, ws *websocket.Conn, id router.Identity, since uint32) {
	c := &conn{
		handler: h, ws: ws, id: id, since: since, connID: rand.Text(), ip: h.opts.TrustedProxies.ClientIP(req),
		values: context.WithoutCancel(req.Context()), streams: map[string]*stream{},
		unread: make(chan struct{}), ended: make(chan struct{}), writing: make(chan struct{}, 1),
	}
	c.ctx, c.cancel = context.WithCancelCause(c.values)
	defer close(c.ended)
	if !h.add(c) {
		c.close(router.StatusServiceRestart, errShutdown)
		return
	}
	defer h.remove(c)
	defer func() { // even if the application panics
		close(c.unread)
		c.cancel(errClosed)
		_ = ws.CloseNow()
		c.running.Wait()
	}()
	ws.SetReadLimit(h.opts.Limits.FrameBytes)
	if !id.ExpiresAt.IsZero() {
		timer := time.AfterFunc(time.Until(id.ExpiresAt.Round(0)), func() { c.close(router.StatusUnauthenticated, errExpired) })
		defer timer.Stop()
	}
	go c.ping()
	c.read()
}

// endAccess closes the connection of a user who was disconnected.
func (c *conn) endAccess(end host.AccessEnd) {
	c.disconnected.Store(true)
	go func() { _ = c.ws.Close(websocket.StatusCode(end.Code), end.Reason) }() // it waits for the client
}

// errClosed is the cause of contexts that end with their connection.
var errClosed = errors.New("the connection is closed")

// read handles the frames of the page until the connection is closed, and those that have arrived
// before a write failed, too.
func (c *conn) read() {
	for {
		typ, text, err := c.ws.Read(c.values)
		if err != nil {
			return
		}
		if typ != websocket.MessageText {
			err = errors.Errorf(errors.InvalidArgument, "a frame must be a text message")
		} else {
			err = c.receive(text)
		}
		if err != nil {
			c.close(router.StatusPolicyViolation, err)
			return
		}
	}
}

// receive handles a frame. An error closes the connection.
func (c *conn) receive(text []byte) error {
	received := time.Now()
	f, kind, requestID, err := parseFrame(text)
	if err != nil {
		return err
	}
	switch action := Action(kind); action {
	case ActionAbort:
		c.abort(requestID)
		return nil
	case ActionSend, ActionResume:
		s := c.newStream(requestID, action, f)
		s.ingress = router.IngressContext{
			Type: kind, ConnID: c.connID, IP: c.ip, Identity: c.id, Size: int64(len(text)), ReceivedAt: received,
		}
		return c.begin(s)
	default:
		c.writeError(requestID, invalid("type", "must be %q, %q or %q", ActionSend, ActionResume, ActionAbort))
		return nil
	}
}

// begin serves a stream on a goroutine of its own. An error closes the connection, because the page
// cannot distinguish the answers to two requests with one ID.
func (c *conn) begin(s *stream) error {
	limit := c.handler.opts.Limits.Requests
	c.mu.Lock()
	var refused error
	switch {
	case c.streams[s.requestID] != nil:
		c.mu.Unlock()
		return errors.Errorf(errors.InvalidArgument, "the requestId is that of a request which has not ended")
	case c.draining:
		refused = errShutdown
	case len(c.streams) >= limit:
		refused = &router.LimitExceeded{Kind: router.LimitConcurrency, Option: "aisdk.Limits.Requests", Type: string(s.action), Observed: int64(limit) + 1, Limit: int64(limit)}
	default:
		s.after = c.abortedLocked(s.chat)
		c.streams[s.requestID] = s
		c.running.Go(s.serve)
	}
	c.mu.Unlock()
	if refused != nil {
		s.cancel(nil)
		s.refuse(refused)
	}
	return nil
}

// abortedLocked returns the streams of a chat whose runs are being stopped.
func (c *conn) abortedLocked(chat string) (aborted []*stream) {
	for _, s := range c.streams {
		if s.chat == chat && s.isAborted {
			aborted = append(aborted, s)
		}
	}
	return aborted
}

// abort aborts a stream. One that has ended is unknown.
func (c *conn) abort(requestID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[requestID]; s != nil && !s.isAborted {
		s.isAborted = true
		close(s.aborted)
	}
}

// revoke ends the streams of topics.
func (c *conn) revoke(matches func(topic string) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.revocations.Add(1)
	for _, s := range c.streams {
		if s.topic != "" && matches(s.topic) {
			s.cancel(errRevoked)
		}
	}
}

// end removes a stream, before its last frame is sent: the page may then use the request ID again.
func (c *conn) end(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[s.requestID] == s {
		delete(c.streams, s.requestID)
	}
}

// A response is a frame to the page. It has nothing else, because the AI SDK closes a connection
// with other frames.
type response struct {
	Type      string `json:"type"`
	RequestID string `json:"requestId"`
	Sequence  *int   `json:"sequence,omitzero"` // of the request, from 0 on
	Chunk     *Chunk `json:"chunk,omitzero"`
	ErrorText string `json:"errorText,omitzero"`
}

// write waits until the client has taken a frame.
func (c *conn) write(r *response) error {
	c.beginWriting()
	defer c.endWriting()
	return c.writeLocked(r)
}

// beginWriting waits until no other goroutine writes.
func (c *conn) beginWriting() { c.writing <- struct{}{} }

func (c *conn) endWriting() { <-c.writing }

// writeLocked is write between beginWriting and endWriting.
func (c *conn) writeLocked(r *response) error {
	text, err := jsonv2.Marshal(r, jsonv2.AllowInvalidUTF8(true))
	if err != nil {
		return err
	}
	if c.ctx.Err() != nil || c.disconnected.Load() {
		return errClosed // a write with this context would keep read from what has arrived
	}
	c.writes.Add(1)
	defer c.writes.Add(1)
	ctx, cancel := context.WithTimeout(c.ctx, c.patience())
	defer cancel()
	if err := c.ws.Write(ctx, websocket.MessageText, text); err != nil {
		c.cancel(errClosed)
		return errClosed
	}
	return nil
}

func (c *conn) writeError(requestID string, err error) {
	_ = c.write(&response{Type: frameError, RequestID: requestID, ErrorText: errorText(publicPart(err))})
}

// errorText returns the text of an error for people who use the page.
func errorText(err error) string {
	e, ok := errors.AsType[*errors.Error](err)
	if !ok {
		return failure.Message(errors.Canceled)
	}
	e = failure.WithoutAnswer(e)
	text := e.Message
	if text == "" {
		text = failure.Message(e.Code)
	}
	if limit := errors.DetailsOf[errors.LimitDetails](e); limit.Policy != "" {
		text += fmt.Sprintf(" (%s)", limit.Policy)
	}
	if e.RetryAfter > 0 && e.RetryAfter != errors.Never {
		text += fmt.Sprintf("; retry in %v", time.Duration(failure.Ceil(e.RetryAfter, time.Second))*time.Second)
	}
	return text
}

// patience is how long a client may take for a frame or for the answer to a ping.
func (c *conn) patience() time.Duration { return 2 * c.handler.opts.PingInterval }

// ping disconnects a client that does not answer. While a frame is written, the timeout of that
// counts: a ping would wait behind it, and the library gives it 5 s.
func (c *conn) ping() {
	for rules.Sleep(c.ctx, c.handler.opts.PingInterval) == nil {
		writes := c.writes.Load()
		if writes%2 == 1 {
			continue
		}
		ctx, cancel := context.WithTimeout(c.ctx, c.patience())
		err := c.ws.Ping(ctx)
		cancel()
		if err != nil && c.writes.Load() == writes {
			_ = c.ws.CloseNow()
			return
		}
	}
}

// close sends a close frame, and waits a few seconds for that of the client.
func (c *conn) close(code router.StatusCode, err error) {
	payload := failure.Payload(publicPart(err))
	_ = c.ws.Close(websocket.StatusCode(code), wire.CloseReason(&payload))
}

// shutDown waits until the streams have ended, and closes the connection.
func (c *conn) shutDown(ctx context.Context) {
	c.mu.Lock()
	c.draining = true
	c.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.running.Wait()
		c.close(router.StatusServiceRestart, errShutdown)
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		c.cancel(errClosed)
		_ = c.ws.CloseNow()
		<-closed
	}
	<-c.ended
}
