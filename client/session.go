//go:build !js

package client

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
)

// greet sends the greeting, and returns what the server has announced, or nil if the server does not
// know the greeting.
func (cn *conn) greet(ctx context.Context) (*protocol.Welcome, error) {
	c := cn.client
	c.mu.Lock()
	fresh := c.opts.Resume && c.resumeToken == ""
	c.mu.Unlock()
	var w protocol.Welcome
	err := cn.request(ctx, protocol.Hello{Session: fresh, Trace: c.opts.ExtractTrace != nil}, &w)
	switch {
	case err == nil:
	case errors.CodeOf(err) == errors.Unimplemented:
		return nil, nil //nolint:nilnil // an older server
	default:
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	cn.acks, cn.concurrency = true, w.Concurrency
	cn.sizes = sizeLimits{w.MaxMessageBytes, w.MaxMessageBytesByType}
	cn.info.ID, cn.info.MemberID, cn.info.ContractHash = w.ConnID, w.ConnID, w.ContractHash
	if w.Session != nil {
		c.resumeToken, cn.hasSession = w.Session.Token, true
	}
	return &w, nil
}

// useForTopics makes a connection the one whose publications are received.
func (c *Client) useForTopics(cn *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topicConn = cn
}

// resubscribe resumes the session on a connection, and subscribes to the topics that are left. It
// returns an error if the connection is of no use.
func (c *Client) resubscribe(cn *conn) error {
	c.mu.Lock()
	token := c.resumeToken
	c.mu.Unlock()
	if c.opts.Resume && token != "" && !cn.hasSession {
		ctx, cancel := context.WithTimeout(c.ctx, c.opts.ConnectTimeout)
		defer cancel()
		if err := c.resume(ctx, cn, token); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscribing = true
	for _, f := range c.topics {
		if len(f.subs) > 0 && !f.live {
			f.askLocked()
		}
	}
	return nil
}

// resume asks the server to continue the session. If the server cannot, the client begins a new one.
// It returns an error only if the connection is of no use.
func (c *Client) resume(ctx context.Context, cn *conn, token string) error {
	cl := newCall(protocol.TypeResume, protocol.TypeResumed)
	request := protocol.Resume{Token: token}
	id, joined := "", make(chan error, 1)
	cl.onAnswer = func(a answer) { // on the reading goroutine: publications follow the answer
		var m protocol.Resumed
		if a.err == nil {
			a.err = a.decode(&m)
		}
		if a.err == nil {
			c.continueSession(cn, id, &m, request.Topics)
		}
		joined <- a.err
	}
	c.mu.Lock()
	for _, f := range c.topics {
		f.asking = cl
		f.pauseLocked()
		request.Topics = append(request.Topics, f.requestLocked())
	}
	request.Topics = cn.sizes.fitting(request.Topics)
	cn.startLocked(cl, encodeProtocol(request))
	id = cl.id
	c.mu.Unlock()
	var err error
	select {
	case err = <-joined:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-cn.ended:
		return cn.err
	}
	if err == nil {
		return nil
	}
	c.log(slog.LevelDebug, "the session was not resumed", slog.Any("error", err))
	if e, ok := errors.AsType[*errors.Error](err); ok && e.Retryable() {
		return err
	}
	return c.beginAgain(ctx, cn, err)
}

// beginAgain replaces a session that has ended. Subscriptions that only the server had made end.
func (c *Client) beginAgain(ctx context.Context, cn *conn, cause error) error {
	var gone []*feed
	c.mu.Lock()
	c.resumeToken = ""
	for _, f := range c.topics {
		f.asking = nil
		if len(f.subs) == 0 {
			gone = append(gone, f)
		}
	}
	c.mu.Unlock()
	for _, f := range gone {
		f.end(cause)
	}
	_, err := cn.greet(ctx)
	return err
}

// continueSession handles the answer to resume, with which the client has presented topics.
func (c *Client) continueSession(cn *conn, id string, m *protocol.Resumed, presented []protocol.Subscribe) {
	c.mu.Lock()
	c.resumeToken = "" // unless the session goes on
	if m.Session != nil {
		c.resumeToken = m.Session.Token
	}
	c.subscribing, cn.info.Resumed, cn.info.MemberID = true, true, m.MemberID
	cn.sendControlLocked(protocol.TypeAck, id, -1, nil)
	c.mu.Unlock()
	for i := range m.Topics {
		topic := &m.Topics[i]
		wasPresented := slices.ContainsFunc(presented, func(s protocol.Subscribe) bool { return s.Topic == topic.Topic })
		switch f := c.resumedFeed(cn, topic, wasPresented); {
		case topic.Error != nil && f != nil:
			c.subscriptionFailed(f, errorOf(topic.Error), false)
		case topic.Error != nil:
		case f != nil:
			c.join(f, &topic.Subscribed)
		case !wasPresented:
			c.receiveSubscribed(&topic.Subscribed)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.topics { // those that the server has left out
		if f.asking != nil && f.asking.id == id {
			f.asking = nil
		}
	}
}

// resumedFeed returns the feed of a resumed topic, or nil if there is none. Then Unsubscribe was called if the client has
// presented the topic, and the server must learn it, before a later Subscribe asks for the topic again.
func (c *Client) resumedFeed(cn *conn, topic *protocol.ResumedTopic, wasPresented bool) *feed {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.topics[topic.Topic]
	if f != nil {
		f.asking = nil
	} else if wasPresented && topic.Error == nil && c.topicConn == cn {
		c.leaveLocked(topic.Topic)
	}
	return f
}

// refreshIdentity sends a new token before the identity expires.
func (c *Client) refreshIdentity(cn *conn, e *envelope) {
	var m protocol.IdentityExpiring
	if err := e.decode(&m); err != nil || c.opts.Token == nil {
		return
	}
	ctx, cancel := context.WithTimeout(cn.ctx, max(time.Second, time.Duration(m.ExpiresInMs)*time.Millisecond))
	defer cancel()
	for {
		err := c.authenticate(ctx, cn)
		if err == nil || ctx.Err() != nil {
			return
		}
		c.log(slog.LevelWarn, "the identity was not refreshed", slog.Any("error", err))
		timer := time.NewTimer(time.Second)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// authenticate sends a new token. An attempt takes no longer than one to connect: the next one may succeed before the identity
// expires.
func (c *Client) authenticate(ctx context.Context, cn *conn) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.ConnectTimeout)
	defer cancel()
	token, err := c.token(ctx, true)
	if err != nil {
		return err
	}
	return cn.request(ctx, protocol.Auth{Token: token}, nil)
}
