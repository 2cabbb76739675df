//go:build !js

package client

import "log/slog"

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
	switch s {
	case Idle:
		return "idle"
	case Connecting:
		return "connecting"
	case Open:
		return "open"
	case Waiting:
		return "waiting"
	default:
		return "closed"
	}
}

// State returns the current state.
func (c *Client) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
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

// setState changes the state and reports it.
func (c *Client) setState(s State, err error) {
	if c.changeState(s, err) {
		c.log(slog.LevelDebug, "state", slog.String("state", s.String()), slog.Any("error", err))
	}
}

// reportMove calls Options.OnState, although the state is still Open: the client has another connection.
func (c *Client) reportMove() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opts.OnState != nil && c.state == Open {
		c.events.Add(func() { c.guard("OnState", func() { c.opts.OnState(Open, nil) }) })
	}
}

// changeState changes the state, and reports whether it was another one.
func (c *Client) changeState(s State, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == s || c.state == Closed {
		return false
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
	return true
}
