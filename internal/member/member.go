package member

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/wire"
	"github.com/penstock-go/penstock/internal/wsconn"
)

// A Conn is a connection as its member needs it.
type Conn interface {
	Member() *Member
	Identity() session.Identity // the current one
	Session() *session.Conn     // for a session that becomes that of the connection
	Reader
}

// A Reader is a connection for which histories are read.
type Reader interface {
	Context() context.Context // ends with the connection

	// Charge charges the client for publications and members that were read for it.
	Charge(publications int)

	// ReportState reports why the rest of a state cannot be sent.
	ReportState(*failure.Failure)
}

// A Node is what the members of a node share. Its fields are set before the first connection.
type Node struct {
	Topics   *topic.Topics
	Sessions *session.Node
	Formats  *envelope.Formats
	Within   time.Duration // how long a client can resume its session; 0 if there are no sessions
	UserLogs bool          // the messages to a user are kept in a log
	Timeout  time.Duration // of calls, and of a subscription whose context has no deadline

	Authorizes func(*topic.Pattern) bool                      // clients may ask to subscribe to topics of a pattern
	Inspect    func(err error, where string) *failure.Failure // of an error that no method of the application has made

	// TooLarge returns the error for a session whose record would have that many bytes.
	TooLarge func(bytes int) error
}

// A Member is the part of a connection that topics and sessions know, and the first of it. The zero value, with the
// read-only fields of its Subscriber, has no subscriptions.
type Member struct {
	topic.Subscriber // first: fan-out reads nothing else

	ID          string        // of the connection; read-only
	Revocations atomic.Uint32 // how often Revoke was called: subscriptions compare it

	lost bool // the transport has ended; guarded by mu
	left bool // LeaveAll was called; guarded by mu

	mu       sync.Mutex
	recovery atomic.Pointer[recovery] // nil until the client asks for positions or a session
}

// A recovery is what a member needs because its client recovers what it has missed.
type recovery struct {
	session atomic.Pointer[Session] // nil if there is none; stored only with Member.mu held

	// Guarded by Member.mu: the topics to which the client has subscribed itself before it had a session. No handler
	// has granted them.
	ownTopics map[string]struct{}

	// The topics for which something is held until the answer to $ws:resume is queued. The handler owns it, which is serial.
	resumed []string

	holding topic.Holding // of all topics
}

// ErrSuperseded is returned for a connection whose session another connection has resumed.
var ErrSuperseded = &errors.Error{Code: errors.Aborted, Message: "superseded by another connection"}

// needRecovery returns the member's recovery, and creates it if there is none.
func (m *Member) needRecovery() *recovery {
	if r := m.recovery.Load(); r != nil {
		return r
	}
	created := new(recovery)
	created.holding.Init()
	m.recovery.CompareAndSwap(nil, created)
	return m.recovery.Load()
}

// Session returns the session of the connection, or nil.
func (m *Member) Session() *Session {
	if r := m.recovery.Load(); r != nil {
		return r.session.Load()
	}
	return nil
}

// Do calls f while the subscriptions do not change. f must not call methods of this package, but those whose names end
// in Locked.
func (m *Member) Do(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// Topics returns the topics to which the connection subscribes, by name.
func (m *Member) Topics() []*topic.Topic {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append(m.TopicsLocked()[:0:0], m.TopicsLocked()...)
}

// Subscribed reports whether the connection subscribes to a topic.
func (m *Member) Subscribed(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.TopicLocked(name) != nil
}

// Codes of close frames (RFC 6455, section 7.4), and codeNone and codeAbnormal for connections that end without one.
const (
	codeGoingAway      = 1001
	codeNone           = 1005
	codeAbnormal       = 1006
	codeTooBig         = 1009
	codeInternalError  = 1011
	codeServiceRestart = 1012
	codeTryAgainLater  = 1013
)

// closedForGood reports whether the close frame of a connection ends its session, and whether it says that the
// client goes away.
func (m *Member) closedForGood() (final, leaving bool) {
	code, _ := m.WS.Status()
	return EndsSession(code), code == codeGoingAway
}

// EndsSession reports whether a close frame with a code ends the session. It does if one side has
// closed the connection deliberately, or because the client violates the protocol or lacks a
// permission; otherwise, the client may come back.
func EndsSession(code int) bool {
	switch code {
	case codeGoingAway, codeNone, codeAbnormal, codeTooBig, codeInternalError, codeServiceRestart, codeTryAgainLater:
		return false
	default:
		return true
	}
}

// send sends a message of the protocol to the client, unless the connection is closed.
func (n *Node) send(m *Member, message protocol.Message) {
	_ = m.WS.Queue(n.encode(m, message))
	m.WS.Wake()
}

// encode encodes a message of the protocol, which cannot fail: it contains only strings and numbers, and is JSON in every
// format.
func (n *Node) encode(m *Member, message protocol.Message) *wsconn.Frame {
	frame, _ := envelope.Encode(n.Formats.Codec(m.Format), message, wire.OutgoingHead{At: time.Now()})
	return frame
}
