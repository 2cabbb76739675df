package router

import (
	"time"

	"github.com/penstock-go/penstock/internal/envelope"
)

// A topicConfig is what topics need of their router.
type topicConfig struct {
	formats        *envelope.Formats
	maxTopics      int                             // of a connection
	queueMessages  int                             // that a send queue holds
	queueBytes     int                             // likewise
	readTimeout    time.Duration                   // of a part of a state
	byID           func(connID string) *subscriber // nil if the connection is not on this node
	topicsExceeded func(n, limit int) error
	queueExceeded  func(bytes int) error

	// What is reported. The functions may be called under the locks of topics.
	delivered     func(receivers int, took time.Duration) // a message of another node, or of a history
	lost          func(topic string, messages int)        // 0 is an unknown number
	presenceWaits func()                                  // topics.nextPresence has changes; nil if nobody needs them
}
