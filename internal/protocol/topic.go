package protocol

// A Subscribe asks for the publications of a topic.
type Subscribe struct {
	Topic    string `json:"topic"`
	Presence bool   `json:"presence,omitzero"`

	// Of topics with a history: Positions asks for positions, and Epoch and Offset are the position
	// up to which the client has received everything.
	Positions bool   `json:"positions,omitzero"`
	Epoch     string `json:"epoch,omitzero"`
	Offset    uint64 `json:"offset,omitzero"`

	// State asks for the current state, unless the client can receive what it has missed since the
	// position. It implies Positions.
	State bool `json:"state,omitzero"`
}

// A Subscribed is the answer to a [Subscribe], or notifies a client that a handler has subscribed it.
type Subscribed struct {
	Topic   string   `json:"topic"`
	Members []Member `json:"members,omitzero"` // nil unless the client asked for presence

	*Position // nil unless the client receives positions
	*Recovery // nil unless the client asked for positions
}

// A Position is a place in the history of a topic.
type Position struct {
	Epoch  string `json:"epoch"`
	Offset uint64 `json:"offset"`
}

// A Recovery says whether a client receives everything that it has missed.
type Recovery struct {
	Recovered bool      `json:"recovered"`
	Ended     *Position `json:"ended,omitempty"` // where the epoch of the client has ended
	State     *int      `json:"state,omitempty"` // how many publications of the state follow
	More      bool      `json:"more,omitzero"`   // the state follows in parts, and then StateComplete
}

// An Unsubscribe ends a subscription.
type Unsubscribe struct {
	Topic string `json:"topic"`
}

// An Unsubscribed is the answer to an [Unsubscribe], or notifies a client that has not sent one.
type Unsubscribed struct {
	Topic string        `json:"topic"`
	Error *ErrorPayload `json:"error,omitempty"` // why the server has ended a subscription whose state is not complete
}

// A Moved moves the position of a client: to behind a loss, to another epoch, or past a publication that the
// client does not receive.
type Moved struct {
	Topic  string    `json:"topic"`
	Epoch  string    `json:"epoch"`
	Offset uint64    `json:"offset"`
	Lost   *Lost     `json:"lost,omitempty"`
	Ended  *Position `json:"ended,omitempty"`
	Reset  bool      `json:"reset,omitempty"`
}

// A Lost has the first and the last offset of what is lost.
type Lost struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// A StateComplete notifies a client that it has the whole state of a topic.
type StateComplete struct {
	Topic string `json:"topic"`
}

// A Member is present on a topic.
type Member struct {
	ConnID   string `json:"connId"`
	TenantID string `json:"tenantId,omitempty"`
	UserID   string `json:"userId,omitempty"`
	Info     string `json:"info,omitempty"`
}

// A PresenceChanged reports changes of the members. A client removes the members of Left first, because one that
// has left and joined again is in both.
type PresenceChanged struct {
	Topic  string   `json:"topic"`
	Joined []Member `json:"joined"`
	Left   []Member `json:"left"`
}

// A Resume continues the session of an earlier connection.
type Resume struct {
	Token  string      `json:"token"`
	Topics []Subscribe `json:"topics,omitempty"` // of the client, with its positions
}

// A Resumed is the answer to a [Resume].
type Resumed struct {
	Session  *SessionGrant  `json:"session,omitempty"` // nil if it has ended again
	MemberID string         `json:"memberId"`          // Member.ConnID of the client
	Topics   []ResumedTopic `json:"topics"`
}

// A ResumedTopic is either the answer to a subscription, or the error that has refused it.
type ResumedTopic struct {
	Subscribed

	Error *ErrorPayload `json:"error,omitempty"`
}
