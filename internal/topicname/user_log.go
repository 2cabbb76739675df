package topicname

import (
	"fmt"
	"strings"
)

// The messages for a user can be kept in a log, which is a topic. Clients know the log of their
// user by the name "", which no topic has.

// userLogPrefix begins the names of the logs of users. It is that of no application's topic,
// because it contains a control character.
const userLogPrefix = "\x00user "

// UserLog returns the name of the log of a user.
func UserLog(tenantID, userID string) string {
	return fmt.Sprintf("%s%d %s %s", userLogPrefix, len(tenantID), tenantID, userID)
}

// IsUserLog reports whether a topic is the log of a user.
func IsUserLog(topic string) bool { return strings.HasPrefix(topic, userLogPrefix) }

// ForClient returns the name by which clients know a topic.
func ForClient(topic string) string {
	if IsUserLog(topic) {
		return ""
	}
	return topic
}
