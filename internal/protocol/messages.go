// Code generated from docs/protocol.json. DO NOT EDIT.

package protocol

import (
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/jsonv2"
)

// An ErrorPayload is the payload of an error: its public part.
type ErrorPayload struct {
	// the reason, for programs
	Code errors.Code `json:"code"`
	// a text for people
	Message string `json:"message,omitzero"`
	// an object; its members depend on the code
	Details any `json:"details,omitzero"`
	// whether sending the same message again can help
	Retryable bool `json:"retryable"`
	// milliseconds to wait before that; null if no wait can help
	RetryAfterMs jsonv2.Value `json:"retryAfterMs,omitzero"`
}

// A LimitDetails has the details of an exceeded limit.
type LimitDetails struct {
	// the kind of the limit
	Kind string `json:"kind"`
	// what the message would have needed
	Observed int64 `json:"observed"`
	// what is permitted
	Limit int64 `json:"limit"`
	// what else has to be known
	Reason string `json:"reason,omitzero"`
	// the name of the policy
	Policy string `json:"policy,omitzero"`
}

// A Hello is the greeting of a client.
type Hello struct {
	// the highest version of the protocol that the client knows. Absent: 1
	Version int64 `json:"version,omitzero"`
	// true: the client asks for a session (section 12)
	Session bool `json:"session,omitzero"`
	// true: the client asks for traceparent and tracestate in the meta of calls of the server
	// (section 9)
	Trace bool `json:"trace,omitzero"`
}

// MessageType returns the type of the message.
func (Hello) MessageType() string { return TypeHello }
func (Hello) protocol()           {}

// A Welcome says what the server expects of the client. The maps have only the types that differ.
type Welcome struct {
	// the version of the protocol on this connection: the highest that both sides know. Absent: 1
	Version int64 `json:"version,omitzero"`
	// the identifier of the connection in the logs of the server
	ConnID string `json:"connId"`
	// the server sends a ping after it has received nothing for so long (section 2)
	PingIntervalMs int64 `json:"pingIntervalMs"`
	// it ends the connection if it receives nothing for so much longer. A client that has received
	// nothing for both times together can assume that the connection is lost only if it sees pings or
	// sends heartbeats itself
	PongTimeoutMs int64 `json:"pongTimeoutMs"`
	// the largest message, including the envelope
	MaxMessageBytes int64 `json:"maxMessageBytes"`
	// the same for types that differ. Absent: none
	MaxMessageBytesByType map[string]int64 `json:"maxMessageBytesByType,omitzero"`
	// the time from receiving a call to its answer
	CallTimeoutMs int64 `json:"callTimeoutMs"`
	// the same for types that differ; 0 means that they have no deadline. Absent: none
	CallTimeoutMsByType map[string]int64 `json:"callTimeoutMsByType,omitzero"`
	// how many calls and streams of the connection may be handled at the same time. One counts from
	// its receipt until its handler has returned, which may be after its answer (a deadline, an
	// abort). A call above that is refused
	Concurrency int `json:"concurrency"`
	// the limits by which the client can pace itself. Absent: the server announces none. Empty: it
	// has none to announce
	Limits []*Limit `json:"limits,omitzero"`
	// the hash of the messages that the application exchanges. A client that was generated from
	// messages with another hash is older, or newer. Absent: unknown
	ContractHash string `json:"contractHash,omitzero"`
	// the session of the connection, if the client has asked for one (section 12)
	Session *SessionGrant `json:"session,omitzero"`
}

// MessageType returns the type of the message.
func (Welcome) MessageType() string { return TypeWelcome }
func (Welcome) protocol()           {}

// A SessionGrant gives a client the means to resume its session.
type SessionGrant struct {
	// the secret that resumes the session
	Token string `json:"token"`
	// how long it is valid after the connection has been lost
	ResumeWithinMs int64 `json:"resumeWithinMs"`
}

// A Limit is a limit of token buckets, of which the connection may use several.
type Limit struct {
	// the name of the limit. Several limits may have the same name
	Name string `json:"name"`
	// tokens in a full bucket
	Capacity int64 `json:"capacity"`
	// that number of tokens returns every refillMs, one after the other at equal intervals, up to the
	// capacity
	Refill int64 `json:"refill"`
	// with refill in lowest terms: 1 every 10 ms for 100 per second
	RefillMs int64 `json:"refillMs"`
	// which connections share a bucket, see below
	Scope string `json:"scope"`
	// the buckets from which messages of this connection take tokens. Each type is in at most one
	// bucket of a limit
	Buckets []*Bucket `json:"buckets"`
}

// A Bucket is what messages take from one bucket and must leave in it.
type Bucket struct {
	// by type, the tokens that a message takes from the bucket if it is admitted. 0: not limited.
	// null: it depends on the message, for example on its size. A type that is not listed is not
	// limited
	Costs map[string]*int64 `json:"costs"`
	// by type, the tokens that must be left in the bucket after the cost. Absent: 0
	Keep map[string]int64 `json:"keep,omitzero"`
}

// An Auth refreshes the identity of the connection.
type Auth struct {
	// the new token, in the form that the client would send in access_token
	Token string `json:"token"`
}

// MessageType returns the type of the message.
func (Auth) MessageType() string { return TypeAuth }
func (Auth) protocol()           {}

// An Authenticated is the answer to an [Auth].
type Authenticated struct {
	// how long the new identity is valid. Absent: it does not expire
	ExpiresInMs int64 `json:"expiresInMs,omitzero"`
}

// MessageType returns the type of the message.
func (Authenticated) MessageType() string { return TypeAuthenticated }
func (Authenticated) protocol()           {}

// An IdentityExpiring warns a client that its identity expires.
type IdentityExpiring struct {
	// how long the identity is still valid
	ExpiresInMs int64 `json:"expiresInMs"`
}

// MessageType returns the type of the message.
func (IdentityExpiring) MessageType() string { return TypeIdentityExpiring }
func (IdentityExpiring) protocol()           {}

// A GoAway asks a client to connect again, and to close this connection afterwards.
type GoAway struct {
	// how long the client waits before it connects again
	ReconnectAfterMs int64 `json:"reconnectAfterMs"`
}

// MessageType returns the type of the message.
func (GoAway) MessageType() string { return TypeGoAway }
func (GoAway) protocol()           {}

// A StreamEnd ends a stream that has no reply of its own.
type StreamEnd struct {
}

// MessageType returns the type of the message.
func (StreamEnd) MessageType() string { return TypeStreamEnd }
func (StreamEnd) protocol()           {}

// A Subscribe asks for the publications of a topic.
type Subscribe struct {
	// the name of the topic
	Topic string `json:"topic"`
	// true: the client asks for the members, and for every change of them
	Presence bool `json:"presence,omitzero"`
	// true: the client is not present. Absent: it is, on topics with presence
	Hidden bool `json:"hidden,omitzero"`
	// true: the client asks for positions
	Positions bool `json:"positions,omitzero"`
	// the epoch of the position up to which the client has received everything. Absent: it has no
	// position
	Epoch string `json:"epoch,omitzero"`
	// the offset of that position. Absent: 0
	Offset uint64 `json:"offset,omitzero"`
	// true: the client asks for the current state, unless it can receive what it has missed; implies
	// positions
	State bool `json:"state,omitzero"`
	// how many of the latest publications the client asks for, unless it can receive what it has
	// missed; implies positions
	Last int64 `json:"last,omitzero"`
}

// MessageType returns the type of the message.
func (Subscribe) MessageType() string { return TypeSubscribe }
func (Subscribe) protocol()           {}

// A Subscribed is the answer to a [Subscribe], or notifies a client that a handler has subscribed it. Position is nil
// unless the client receives positions, and Recovery is nil unless it has asked for them.
type Subscribed struct {
	// the name of the topic
	Topic string `json:"topic"`
	// who is present, at most 256. Absent: the client has not asked, or the topic has no presence
	Members []Member `json:"members,omitzero"`
	*Position
	*Recovery
}

// MessageType returns the type of the message.
func (Subscribed) MessageType() string { return TypeSubscribed }
func (Subscribed) protocol()           {}

// A Position is a place in the history of a topic.
type Position struct {
	// the epoch
	Epoch string `json:"epoch"`
	// the offset in the epoch
	Offset uint64 `json:"offset"`
}

// A Recovery says whether a client receives everything that it has missed.
type Recovery struct {
	// true: everything that the client has missed follows. false: the client loads its state again
	Recovered bool `json:"recovered"`
	// where the epoch of the client's position has ended, if it has
	Ended *Position `json:"ended,omitzero"`
	// how many publications of the state follow first. Absent: none follow, and the client keeps its
	// state
	State *int `json:"state,omitzero"`
	// true: other publications of the state follow later, and then $ws:state
	More bool `json:"more,omitzero"`
}

// An Unsubscribe ends a subscription.
type Unsubscribe struct {
	// the name of the topic
	Topic string `json:"topic"`
}

// MessageType returns the type of the message.
func (Unsubscribe) MessageType() string { return TypeUnsubscribe }
func (Unsubscribe) protocol()           {}

// An Unsubscribed is the answer to an [Unsubscribe], or notifies a client that has not sent one.
type Unsubscribed struct {
	// the name of the topic
	Topic string `json:"topic"`
	// why the server has ended a subscription whose state is not complete
	Error *ErrorPayload `json:"error,omitzero"`
}

// MessageType returns the type of the message.
func (Unsubscribed) MessageType() string { return TypeUnsubscribed }
func (Unsubscribed) protocol()           {}

// A Moved moves the position of a client: to behind a loss, to another epoch, or past a publication that the
// client does not receive.
type Moved struct {
	// the name of the topic
	Topic string `json:"topic"`
	// with offset, the position after which publications follow
	Epoch string `json:"epoch"`
	// see epoch
	Offset uint64 `json:"offset"`
	// the first and the last offset of publications that are lost for this client
	Lost *Lost `json:"lost,omitzero"`
	// the position at which the previous epoch has ended, because the store of the server has failed
	// over: publications of that epoch with higher offsets, if there were any, are lost, even if the
	// client has received them. Their offsets are used again. An answer has this member, too, if the
	// epoch of the client's position has ended
	Ended *Position `json:"ended,omitzero"`
	// true: it is unknown what is lost. The client MUST load its state again
	Reset bool `json:"reset,omitzero"`
}

// MessageType returns the type of the message.
func (Moved) MessageType() string { return TypePosition }
func (Moved) protocol()           {}

// A Lost has the first and the last offset of what is lost.
type Lost struct {
	// the first offset
	From uint64 `json:"from"`
	// the last offset
	To uint64 `json:"to"`
}

// A StateComplete notifies a client that it has the whole state of a topic.
type StateComplete struct {
	// the name of the topic
	Topic string `json:"topic"`
}

// MessageType returns the type of the message.
func (StateComplete) MessageType() string { return TypeState }
func (StateComplete) protocol()           {}

// A Member is present on a topic.
type Member struct {
	// identifies the member on all servers: a connection, or a session (section 12) by its first
	// connection. A user with several connections is several members, or one in topics where the
	// server keeps users present who have lost their connection: connId is then an opaque text that
	// stands for the user
	ConnID string `json:"connId"`
	// absent if the connection is anonymous, or users have no tenants
	TenantID string `json:"tenantId,omitzero"`
	// absent if the connection is anonymous
	UserID string `json:"userId,omitzero"`
	// a text of the application; absent if it is empty
	Info string `json:"info,omitzero"`
}

// A PresenceChanged reports changes of the members. A client removes the members of Left first, because one that
// has left and joined again is in both.
type PresenceChanged struct {
	// the name of the topic
	Topic string `json:"topic"`
	// members to add, after those in left have been removed
	Joined []Member `json:"joined"`
	// members to remove
	Left []Member `json:"left"`
}

// MessageType returns the type of the message.
func (PresenceChanged) MessageType() string { return TypePresence }
func (PresenceChanged) protocol()           {}

// A Resume continues the session of an earlier connection.
type Resume struct {
	// the token of the session
	Token string `json:"token"`
	// the topics of the client, each at most once, with its positions
	Topics []Subscribe `json:"topics,omitzero"`
}

// MessageType returns the type of the message.
func (Resume) MessageType() string { return TypeResume }
func (Resume) protocol()           {}

// A Resumed is the answer to a [Resume].
type Resumed struct {
	// the new token. Absent: the session has ended again, because the connection is closing
	Session *SessionGrant `json:"session,omitzero"`
	// the connId of the client as a member of topics
	MemberID string `json:"memberId"`
	// the topics to which the client is subscribed, or why it is not
	Topics []ResumedTopic `json:"topics"`
}

// MessageType returns the type of the message.
func (Resumed) MessageType() string { return TypeResumed }
func (Resumed) protocol()           {}

// A ResumedTopic is either the answer to a subscription, or the error that has refused it.
type ResumedTopic struct {
	Subscribed

	// why the client is not subscribed
	Error *ErrorPayload `json:"error,omitzero"`
}
