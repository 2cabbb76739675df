//go:build !js

package client

import (
	"context"
	"log/slog"
	"time"

	"github.com/coder/websocket"

	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/rules"
)

// run keeps a connection until the client is closed.
func (c *Client) run() {
	defer close(c.ended)
	if err := checkURL(c.url); err != nil {
		c.log(slog.LevelError, "the client is closed, because it cannot connect to its URL", slog.String("url", c.server()), slog.Any("error", err))
		c.cancel(err)
		c.finish(err)
		return
	}
	var r retries
	for {
		cn, w, err := c.connect(r.expired)
		if err == nil {
			r.opened()
			err = c.serve(cn, w, &r)
		}
		if c.ctx.Err() != nil {
			err = context.Cause(c.ctx)
		} else if delay, again := r.next(err, &c.opts); again {
			c.log(slog.LevelWarn, "the client is not connected, and tries again", slog.String("url", c.server()), slog.Duration("delay", delay), slog.Any("error", err))
			c.mu.Lock()
			c.retryAt = time.Now().Add(delay)
			c.mu.Unlock()
			c.setState(Waiting, err)
			_ = rules.Sleep(c.ctx, delay)
			c.awaitHandlers()
			if c.ctx.Err() == nil {
				c.setState(Connecting, nil)
				continue
			}
			err = context.Cause(c.ctx)
		} else {
			c.log(slog.LevelError, "the client is closed, because connecting again does not help", slog.String("url", c.server()), slog.Any("error", err))
		}
		c.cancel(err)
		c.goroutines.Wait()
		c.finish(err)
		return
	}
}

// awaitHandlers waits until at most half of the messages that may wait for handlers do.
func (c *Client) awaitHandlers() {
	for c.handlersAreBehind() {
		select {
		case <-c.handled:
		case <-c.ctx.Done():
			return
		}
	}
}

func (c *Client) handlersAreBehind() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queuedBytes > c.opts.MaxQueuedBytes/2
}

// connect opens a connection and greets.
func (c *Client) connect(expired bool) (*conn, *protocol.Welcome, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.opts.ConnectTimeout)
	defer cancel()
	cn, err := c.dial(ctx, expired)
	if err != nil {
		return nil, nil, err
	}
	w, err := cn.greet(ctx)
	if err != nil {
		c.lost(cn, err)
		cn.close(websocket.StatusGoingAway)
		return nil, nil, err
	}
	cn.usable = time.Now()
	return cn, w, nil
}

// serve uses a connection until it has ended. If the server asks for another one, that replaces it.
func (c *Client) serve(cn *conn, w *protocol.Welcome, r *retries) error {
	defer func() { r.closed(cn) }() // the last one
	c.useForTopics(cn)
	c.use(cn, w)
	if err := c.resubscribe(cn); err != nil {
		c.lost(cn, err)
		cn.close(websocket.StatusGoingAway)
		return err
	}
	c.startSending(cn)
	c.setState(Open, nil)
	for {
		select {
		case <-cn.ended:
			c.lost(cn, cn.err)
			return cn.err
		case delay := <-cn.goaway:
			if next := c.replace(cn, delay+r.move(cn, &c.opts), r); next != nil {
				cn = next
			}
		case <-c.ctx.Done():
			c.lost(cn, ErrClosed)
			cn.close(websocket.StatusNormalClosure)
			return ErrClosed
		}
	}
}

// use makes a connection the one over which messages are sent.
func (c *Client) use(cn *conn, w *protocol.Welcome) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = cn
	c.pacer.open(w, time.Now())
}

func (c *Client) startSending(cn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cn.sending = true
	cn.wakeWriter()
}

// lost settles what was sent over a connection that has ended.
func (c *Client) lost(cn *conn, cause error) {
	c.mu.Lock()
	cn.sending = false
	c.lastConn, cn.lost = cn, time.Now()
	var settled []*call
	for id, cl := range c.calls {
		if cl.conn != cn {
			continue
		}
		delete(c.calls, id)
		cl.conn = nil
		settled = append(settled, cl)
	}
	if c.conn == cn {
		c.conn = nil
	}
	if c.topicConn == cn {
		c.topicConn, c.subscribing = nil, false
		for _, f := range c.topics {
			f.asking = nil
			f.pauseLocked()
		}
	}
	unconfirmed := c.pacer.closed(cn)
	c.mu.Unlock()
	err := outcomeUnknown(cause)
	for _, cl := range settled {
		cl.finish(answer{err: err})
	}
	for _, m := range unconfirmed {
		c.fail(m, err)
	}
}
