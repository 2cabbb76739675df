package router

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"time"

	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/registry"
	"github.com/penstock-go/penstock/internal/topic"
)

// This file makes connections members of topics.

// A Member is a connection that is present in a topic, or a session: it stays present, as the same
// member, from the loss of a connection until the client resumes it or cannot do so any more. In a
// topic with a [TopicOptions] PresenceGrace, it is a user.
type Member struct {
	ConnID   string `json:"connId"` // of the connection, or of the first one of its session; or a text that stands for the user
	TenantID string `json:"tenantId,omitempty"`
	UserID   string `json:"userId,omitempty"`
	Info     string `json:"info,omitempty"` // the argument of Present
}

// A PresenceEvent reports that a member has joined a topic or left it.
type PresenceEvent struct {
	Topic  string
	Member Member
	Joined bool // false if the member has left
}

// maxInfoBytes bounds the info of a member.
const maxInfoBytes = 1024

// Presence returns the members of topic on all nodes, sorted by ConnID. It returns nil unless
// a connection of this node is present in the topic and this node still has subscribers.
func (r *Router) Presence(topic string) []Member {
	var all []Member
	for _, m := range r.topics.Members(topic) {
		all = append(all, Member(m))
	}
	return all
}

// joinLocked makes the connection present in a topic to which it subscribes, or sets its info if
// that is empty.
func (c *Conn) joinLocked(t *topic.Topic, info string) {
	c.router.topics.JoinLocked(t, &c.sub, c.member(t, info))
}

// rejoinLocked replaces the member of the connection if it is present in a topic, because its
// identity or its session has changed. It sets the info unless that is empty.
func (c *Conn) rejoinLocked(t *topic.Topic, info string) {
	c.router.topics.RejoinLocked(t, &c.sub, c.member(t, info))
}

// member returns the connection as a member of a topic.
func (c *Conn) member(t *topic.Topic, info string) topic.Announced {
	identity, grace := c.Identity(), t.Pattern.PresenceGrace
	m := protocol.Member{ConnID: c.id, TenantID: identity.TenantID, UserID: identity.UserID, Info: info}
	var stays time.Duration
	if s := c.session(); s != nil {
		m.ConnID = s.MemberID()
		if !s.IsOver() {
			stays = c.router.opts.Resume.Within
		}
	}
	if grace > 0 && identity.UserID != "" {
		m.ConnID, stays = userMemberID(identity.user()), max(stays, grace)
	}
	return topic.Announced{Member: m, Stays: stays}
}

// userMemberID returns the Member.ConnID of a user in topics with a PresenceGrace. It contains a
// character that no ID of a connection has.
func userMemberID(user registry.User) string {
	hash := sha256.New()
	_, _ = hash.Write(binary.AppendUvarint(nil, uint64(len(user.TenantID))))
	_, _ = hash.Write([]byte(user.TenantID + user.UserID))
	return "user-" + base32.StdEncoding.EncodeToString(hash.Sum(nil)[:15])
}
