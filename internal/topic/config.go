package topic

import (
	"time"

	"github.com/penstock-go/penstock/internal/envelope"
	"github.com/penstock-go/penstock/internal/present"
)

// A Config is what topics need of their router.
type Config struct {
	Formats        *envelope.Formats
	MaxTopics      int                             // of a connection
	QueueMessages  int                             // that a send queue holds
	QueueBytes     int                             // likewise
	ReadTimeout    time.Duration                   // of a part of a state
	Away           *present.Table                  // of the node
	ByID           func(connID string) *Subscriber // nil if the connection is not on this node
	TopicsExceeded func(n, limit int, option string) error
	QueueExceeded  func(bytes int) error

	// What is reported. The functions may be called under the locks of topics.
	Delivered     func(receivers int, took time.Duration) // a message of another node, or of a history
	Lost          func(topic string, messages int)        // 0 is an unknown number
	PresenceWaits func()                                  // Topics.NextPresence has changes; nil if they are not needed
}
