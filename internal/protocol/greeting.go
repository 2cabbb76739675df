package protocol

// A Hello is the greeting of a client.
type Hello struct {
	Session bool `json:"session,omitzero"` // the client asks for a session
}

// A Welcome says what the server expects of the client. The maps have only the types that differ.
type Welcome struct {
	ConnID                string           `json:"connId"`
	PingIntervalMs        int64            `json:"pingIntervalMs"`
	PongTimeoutMs         int64            `json:"pongTimeoutMs"`
	MaxMessageBytes       int64            `json:"maxMessageBytes"`
	MaxMessageBytesByType map[string]int64 `json:"maxMessageBytesByType,omitzero"`
	CallTimeoutMs         int64            `json:"callTimeoutMs"`
	CallTimeoutMsByType   map[string]int64 `json:"callTimeoutMsByType,omitzero"` // 0 means none
	Concurrency           int              `json:"concurrency"`
	Limits                []*Limit         `json:"limits,omitzero"` // nil if the server announces none
	ContractHash          string           `json:"contractHash,omitzero"`
	Session               *SessionGrant    `json:"session,omitempty"` // nil if there is none
}

// A SessionGrant gives a client the means to resume its session.
type SessionGrant struct {
	Token          string `json:"token"`
	ResumeWithinMs int64  `json:"resumeWithinMs"`
}

// A Limit is a token bucket, of which the connection may have several: up to Capacity tokens, and Refill of them
// return every RefillMs milliseconds, one by one.
type Limit struct {
	Name     string    `json:"name"`
	Capacity int64     `json:"capacity"`
	Refill   int64     `json:"refill"`
	RefillMs int64     `json:"refillMs"`
	Scope    string    `json:"scope"`
	Buckets  []*Bucket `json:"buckets"`
}

// A Bucket is what messages take from one bucket and must leave in it, by type.
type Bucket struct {
	Costs map[string]*int64 `json:"costs"` // nil if the cost depends on the message
	Keep  map[string]int64  `json:"keep,omitzero"`
}

// An Auth refreshes the identity of the connection.
type Auth struct {
	Token string `json:"token"`
}

// An Authenticated is the answer to an [Auth].
type Authenticated struct {
	ExpiresInMs int64 `json:"expiresInMs,omitzero"` // 0 if the identity does not expire
}

// An IdentityExpiring warns a client that its identity expires.
type IdentityExpiring struct {
	ExpiresInMs int64 `json:"expiresInMs"`
}

// A StreamEnd ends a stream that has no reply of its own.
type StreamEnd struct{}

// A GoAway asks a client to connect again, and to close this connection afterwards.
type GoAway struct {
	ReconnectAfterMs int64 `json:"reconnectAfterMs"`
}
