//go:build !js

package client

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/executor"
)

// A Message is a Go value with the name that it has in the protocol. The types that a router
// registers are Messages.
type Message interface {
	MessageType() string
}

// A Client is a connection to a server that is opened again whenever it is lost. Create it with
// [New]. It is safe for concurrent use.
type Client struct {
	url  string
	opts Options

	start      sync.Once
	ctx        context.Context //nolint:containedctx // ends when the client is closed
	cancel     context.CancelCauseFunc
	handled    chan struct{}      // receives a value when a handler has returned
	ended      chan struct{}      // closed when the last goroutine of the client has ended
	goroutines sync.WaitGroup     // of connections
	events     executor.FuncQueue // calls handlers and hooks, one at a time

	// mu guards everything below. It is not held while a function of the application runs or while
	// a connection is read or written.
	mu          sync.Mutex
	state       State
	changed     chan struct{} // closed and replaced when state changes
	retryAt     time.Time     // of the next attempt, if state is Waiting
	failure     error         // why the last connection was not opened, or why the client is closed
	conn        *conn         // over which messages are sent; nil if there is none
	topicConn   *conn         // that has the subscriptions: while a connection is replaced, the old one
	lastConn    *conn         // that was lost last
	outcome     chan struct{} // receives a value when a message may have its outcome
	subscribing bool          // subscriptions are requested on topicConn
	ids         idSource
	queue       sendQueue
	calls       map[string]*call // that were sent, by correlation ID
	recent      recentEvents
	handlers    handlers
	topics      map[string]*feed
	resumeToken string // of the session; "" if there is none
	pacer       pacer
	queuedBytes int64 // of messages that wait for handlers
}

// New returns a client for a URL with the scheme ws or wss. It does not connect before the first
// call of Connect, Send, Call, Stream or Subscribe. If opts is nil, the zero Options apply; otherwise
// opts is copied. New panics if an option is invalid.
func New(url string, opts *Options) *Client {
	c := &Client{url: url, changed: make(chan struct{}), ended: make(chan struct{}), handled: make(chan struct{}, 1), outcome: make(chan struct{}, 1)}
	if opts != nil {
		c.opts = *opts
	}
	c.opts.setDefaults()
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.ids.init()
	c.calls, c.topics = map[string]*call{}, map[string]*feed{}
	c.handlers = handlers{on: map[string][]*Handler{}, served: map[string]server{}, serving: map[servedCall]context.CancelFunc{}}
	c.queue.limits = c.opts.Queue
	c.pacer = pacer{enabled: c.opts.Pacing, learned: map[string]*learnedLimit{}, sentMessages: map[string]*sentMessage{}}
	return c
}

// Connect starts to connect, and waits until the connection is open. It returns the context's cause,
// or the error that has closed the client. Failed attempts are not returned: they are repeated until
// the context is done.
func (c *Client) Connect(ctx context.Context) error {
	c.begin()
	for {
		c.mu.Lock()
		state, changed, failure := c.state, c.changed, c.failure
		c.mu.Unlock()
		switch state {
		case Open:
			return nil
		case Closed:
			return failure
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), failure)
		}
	}
}

// begin starts the goroutine that keeps the connection.
func (c *Client) begin() {
	c.start.Do(func() {
		c.setState(Connecting, nil)
		go c.run()
	})
}

// ErrClosed is the error of everything that a closed client is asked for.
var ErrClosed = &errors.Error{Code: errors.Unavailable, Message: "the client is closed"}

// Close closes the connection, fails everything that waits, and returns when all goroutines of the
// client have ended, except for handlers that have not returned. It waits for the close handshake for
// at most two seconds, or until ctx is done. The session ends: the server does not keep it for
// another connection.
func (c *Client) Close(ctx context.Context) error {
	c.cancel(ErrClosed)
	c.start.Do(func() { // it was never started
		c.finish(ErrClosed)
		close(c.ended)
	})
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Done returns a channel that is closed when the client is closed, by Close or because the server has
// said that connecting again does not help.
func (c *Client) Done() <-chan struct{} { return c.ended }

// Err returns why the client is closed: [ErrClosed] after Close, or the error with which the server has
// rejected it. It returns nil while the client is not closed.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != Closed {
		return nil
	}
	return c.failure
}

// finish ends everything that waits. It is called once, by the last goroutine.
func (c *Client) finish(cause error) {
	c.setState(Closed, cause)
	c.mu.Lock()
	queued := c.queue.takeAll()
	calls := c.calls
	c.calls = map[string]*call{}
	topics := c.topics
	c.topics = map[string]*feed{}
	c.mu.Unlock()
	for _, m := range queued {
		c.fail(m, cause)
	}
	for _, cl := range calls {
		cl.finish(answer{err: cause})
	}
	for _, f := range topics {
		f.end(cause)
	}
}

// closedErrorLocked returns the error of a closed client, or nil.
func (c *Client) closedErrorLocked() error {
	switch {
	case c.state == Closed:
		return c.failure
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	}
	return nil
}

func (c *Client) log(level slog.Level, text string, args ...any) {
	c.opts.Logger.Log(context.Background(), level, text, args...)
}
