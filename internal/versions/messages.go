// Package versions has the messages of the test of two versions in one cluster.
package versions

type (
	// A Request names what a call is about.
	Request struct {
		Topic string `json:"topic"`
		Text  string `json:"text"`
		User  string `json:"user"`
		Count int64  `json:"count"`
	}

	// A Reply has the result of a call.
	Reply struct {
		Texts  []string `json:"texts"`
		Number int64    `json:"number"`
	}
)

// The messages that applications send.
type (
	// Enter subscribes the connection to a topic.
	Enter Request
	// Publish publishes a note.
	Publish Request
	// Members returns the users that are present in a topic.
	Members Request
	// AskUser calls the clients of a user.
	AskUser Request
	// Spend takes tokens, one by one, and returns how many it got.
	Spend Request
	// Note is a publication.
	Note Request
	// Question is a call to a client.
	Question Request
	// Result is the reply of a node.
	Result Reply
	// Answer is the reply of a client.
	Answer Reply
)

// MessageType returns the name of the message.
func (Enter) MessageType() string { return "ENTER" }

// MessageType returns the name of the message.
func (Publish) MessageType() string { return "PUBLISH" }

// MessageType returns the name of the message.
func (Members) MessageType() string { return "MEMBERS" }

// MessageType returns the name of the message.
func (AskUser) MessageType() string { return "ASK_USER" }

// MessageType returns the name of the message.
func (Spend) MessageType() string { return "SPEND" }

// MessageType returns the name of the message.
func (Note) MessageType() string { return "NOTE" }

// MessageType returns the name of the message.
func (Question) MessageType() string { return "QUESTION" }

// MessageType returns the name of the message.
func (Result) MessageType() string { return "RESULT" }

// MessageType returns the name of the message.
func (Answer) MessageType() string { return "ANSWER" }
