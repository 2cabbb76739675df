//go:build !js

package client

import (
	"context"
	"log/slog"
	"time"

	"github.com/penstock-go/penstock/errors"
)

// A State says whether a client is connected.
type State int

// The states. A client is Idle until it is used for the first time, and stays Closed.
const (
	Idle       State = iota
	Connecting       // an attempt to connect is in progress
	Open             // messages are sent
	Waiting          // before the next attempt
	Closed
)

// String returns the name in lower case.
func (s State) String() string {
	return [...]string{"idle", "connecting", "open", "waiting", "closed"}[min(max(s, Idle), Closed)]
}

// State returns the current state.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// RetryAt returns when the next attempt to connect begins. ok is false unless the state is Waiting.
func (c *Client) RetryAt() (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.retryAt, c.state == Waiting
}

// A Connection is what the server has said about the connection of a client.
type Connection struct {
	// ID identifies the connection in the logs of the server. It is "" if the server does not know the greeting.
	ID string

	// MemberID is the Member.ConnID of the client: the ID of the first connection of its session.
	// In topics with TopicOptions.PresenceGrace, members are users: there, compare Member.UserID.
	MemberID string

	// Resumed is set if the session of the connection before continues; see Options.Resume.
	Resumed bool

	// ContractHash is that of the server's messages; see router.Options.ContractHash.
	ContractHash string
}

// Connection returns what the server has said about the connection over which messages are sent. ok is false
// while there is none.
func (c *Client) Connection() (conn Connection, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != Open || c.conn == nil {
		return Connection{}, false
	}
	return c.conn.info, true
}

// Ping measures the round trip to the server, with a ping of RFC 6455. It returns UNAVAILABLE if the client is
// not connected, or loses the connection meanwhile.
func (c *Client) Ping(ctx context.Context) (roundTrip time.Duration, err error) {
	c.mu.Lock()
	cn := c.conn
	c.mu.Unlock()
	if cn == nil {
		return 0, errors.Errorf(errors.Unavailable, "the client is not connected")
	}
	began, answered := time.Now(), make(chan error, 1)
	go func() { answered <- cn.ws.Ping(cn.ctx) }() // a frame that ctx interrupts would close the connection
	select {
	case err = <-answered:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	if err != nil {
		return 0, &errors.Error{Code: errors.Unavailable, Message: "the connection was lost", Err: err}
	}
	return time.Since(began), nil
}

// setState changes the state and reports it.
func (c *Client) setState(s State, err error) {
	c.mu.Lock()
	if c.state == s || c.state == Closed {
		c.mu.Unlock()
		return
	}
	c.state = s
	if err != nil || s == Open {
		c.failure = err
	}
	close(c.changed)
	c.changed = make(chan struct{})
	if c.opts.OnState != nil {
		c.events.Add(func() { c.guard("OnState", func() { c.opts.OnState(s, err) }) })
	}
	c.mu.Unlock()
	c.log(slog.LevelDebug, "state", slog.String("state", s.String()), slog.Any("error", err))
}

// reportMove calls Options.OnState, although the state is still Open: the client has another connection.
func (c *Client) reportMove() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opts.OnState != nil && c.state == Open {
		c.events.Add(func() { c.guard("OnState", func() { c.opts.OnState(Open, nil) }) })
	}
}
