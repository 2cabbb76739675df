package inspect

import (
	"context"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/router"
)

// connDetails is a connection with what only its own page shows.
type connDetails struct {
	connRow

	ExpiresAt     string     `json:"expiresAt"` // of the identity; "" if it does not expire
	Calls         int        `json:"calls"`     // without an answer
	Peak          int        `json:"peak"`      // messages that have waited at the same time
	PeakBytes     int        `json:"peakBytes"`
	MessageTokens int        `json:"messageTokens"` // left of router.Limits.MessagesPerConn; -1 if that is unlimited
	MessageBurst  int        `json:"messageBurst"`
	Topics        []topicRow `json:"topics"`     // at most 100
	TopicCount    int        `json:"topicCount"` // of the connection
}

// connTarget names a connection, and why it is closed.
type connTarget struct {
	ID     string `json:"id"`
	Reason string `json:"reason,omitempty"` // for the developers of the client, in the close frame
	Code   int    `json:"code,omitempty"`   // between nodes
}

// byID names a connection or a trace.
type byID struct {
	ID string `json:"id"`
}

// localConn returns the details of a connection of this node, or nil.
func (i *Inspector) localConn(_ context.Context, t connTarget) (*connDetails, error) {
	c := i.router.Conn(t.ID)
	found, ok := i.access.Conn(t.ID)
	if c == nil || !ok {
		return nil, nil //nolint:nilnil // other nodes may have it
	}
	queue := c.QueueStats()
	d := &connDetails{
		connRow: i.rowOf(c), Calls: found.Calls, Peak: queue.PeakMessages, PeakBytes: queue.PeakBytes,
		MessageTokens: found.MessageTokens, MessageBurst: found.MessageBurst, TopicCount: len(found.Topics), Topics: []topicRow{},
	}
	if found.MessageBurst == router.Unlimited {
		d.MessageTokens, d.MessageBurst = -1, -1
	}
	if at := c.Identity().ExpiresAt; !at.IsZero() {
		d.ExpiresAt = at.UTC().Format("2006-01-02T15:04:05Z")
	}
	for _, t := range firstRows(found.Topics) {
		d.Topics = append(d.Topics, i.topicRow(t))
	}
	return d, nil
}

// showConn returns the details of a connection, from the node that has it.
func (i *Inspector) showConn(ctx context.Context, t byID) (any, error) {
	answers, states, err := gather[*connDetails](ctx, i, askConn, connTarget{ID: t.ID})
	if err != nil {
		return nil, err
	}
	found := struct {
		Nodes nodeStates   `json:"nodes"`
		Conn  *connDetails `json:"conn"` // null if no node that has answered has it
	}{Nodes: states}
	for _, a := range answers {
		if a.Result != nil {
			found.Conn = a.Result
		}
	}
	return found, nil
}

// localClose closes a connection of this node, and reports whether there is one.
func (i *Inspector) localClose(_ context.Context, t connTarget) (bool, error) {
	c := i.router.Conn(t.ID)
	if c == nil {
		return false, nil
	}
	c.Close(router.StatusCode(t.Code), t.Reason)
	return true, nil
}

// An ending closes a connection.
type ending struct {
	ID     string `json:"id"`
	Reason string `json:"reason,omitempty"` // for the developers of the client, in the close frame
}

// disconnect closes a connection, with a code after which clients return and resume their sessions.
func (i *Inspector) disconnect(ctx context.Context, e ending) (any, error) {
	return i.closeConn(ctx, e, router.StatusServiceRestart)
}

// endSession closes a connection, with a code that ends its session and after which clients return.
func (i *Inspector) endSession(ctx context.Context, e ending) (any, error) {
	return i.closeConn(ctx, e, router.StatusPolicyViolation)
}

// changed is the result of an action on several nodes.
type changed struct {
	Nodes nodeStates `json:"nodes"`
}

func (i *Inspector) closeConn(ctx context.Context, e ending, code router.StatusCode) (any, error) {
	if e.ID == "" {
		return nil, errors.Errorf(errors.InvalidArgument, "id is empty; it must be that of a connection")
	}
	answers, states, err := gather[bool](ctx, i, askClose, connTarget{e.ID, e.Reason, int(code)})
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		if a.Result {
			return changed{states}, nil
		}
	}
	return nil, errors.Errorf(errors.NotFound, "no node that has answered has this connection")
}

// A userEnding closes all connections of a user.
type userEnding struct {
	Tenant string `json:"tenant"`
	User   string `json:"user"`
	Reason string `json:"reason,omitempty"`
}

// A revocation ends the access of a user to a topic or a pattern of topics.
type revocation struct {
	Tenant string `json:"tenant"`
	User   string `json:"user"`
	Topic  string `json:"topic"`
}

var errNoUser = &errors.Error{Code: errors.InvalidArgument, Message: "user is empty; anonymous clients can be disconnected by their connections only"}

func (i *Inspector) disconnectUser(_ context.Context, e userEnding) (any, error) {
	if e.User == "" {
		return nil, errNoUser
	}
	n, err := i.router.DisconnectUser(e.Tenant, e.User, router.StatusPolicyViolation, e.Reason)
	return map[string]int{"connsOnThisNode": n}, err
}

func (i *Inspector) revoke(ctx context.Context, r revocation) (any, error) {
	if r.User == "" {
		return nil, errNoUser
	}
	return struct{}{}, i.router.Revoke(ctx, r.Tenant, r.User, r.Topic)
}

// topicRow is a topic in a list.
type topicRow struct {
	Name        string `json:"name"`
	Pattern     string `json:"pattern"` // that declares it, or ""
	Subscribers int    `json:"subscribers"`
	Members     int    `json:"members"` // in its presence, as far as a node with subscribers knows
	Epoch       string `json:"epoch"`   // of its history; "" without one, or while it is not known
	Offset      uint64 `json:"offset"`
}

func (i *Inspector) topicRow(t host.Topic) topicRow {
	return topicRow{Name: t.Name, Pattern: t.Pattern, Subscribers: t.Subscribers, Members: t.Members, Epoch: t.Position.Epoch, Offset: t.Position.Offset}
}
