package member

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/penstock-go/penstock/internal/present"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topic"
	"github.com/penstock-go/penstock/internal/topic/presence"
)

// This file makes connections members of topics, also while their clients are away.

// showLocked makes the connection present in a topic to which it subscribes, or sets its info if that is empty, where g
// or the pattern of the topic says so. With g.Hidden, the connection is not present any more.
func (n *Node) showLocked(c Conn, m *Member, t *topic.Topic, g session.Grant) {
	switch {
	case g.Hidden:
		n.Topics.EndPresence(t, &m.Subscriber)
	case g.Joined || t.Pattern.Presence:
		n.Topics.JoinLocked(t, &m.Subscriber, n.announced(c, m, t, g.Info))
	}
}

// rejoinLocked replaces the member of the connection if it is present in a topic, because its
// identity or its session has changed. It sets the info unless that is empty.
func (n *Node) rejoinLocked(c Conn, m *Member, t *topic.Topic, info string) {
	n.Topics.RejoinLocked(t, &m.Subscriber, n.announced(c, m, t, info))
}

func (n *Node) rejoinAll(c Conn) {
	m := c.Member()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.TopicsLocked() {
		n.rejoinLocked(c, m, t, "")
	}
}

// announced returns the connection as a member of a topic.
func (n *Node) announced(c Conn, m *Member, t *topic.Topic, info string) presence.Announced {
	user, grace := c.Identity().User, t.Pattern.PresenceGrace
	member := protocol.Member{ConnID: m.ID, TenantID: user.TenantID, UserID: user.UserID, Info: info}
	var stays time.Duration
	if s := m.Session(); s != nil {
		member.ConnID = s.MemberID()
		if !s.IsOver() {
			stays = n.Within
		}
	}
	if grace > 0 && user.UserID != "" {
		member.ConnID, stays = userMemberID(user), max(stays, grace)
	}
	return presence.Announced{Member: member, Stays: stays}
}

// userMemberID returns the Member.ConnID of a user in topics with a PresenceGrace. It contains a
// character that no ID of a connection has.
func userMemberID(user session.User) string {
	hash := sha256.New()
	_, _ = hash.Write(binary.AppendUvarint(nil, uint64(len(user.TenantID))))
	_, _ = hash.Write([]byte(user.TenantID + user.UserID))
	return "user-" + base32.StdEncoding.EncodeToString(hash.Sum(nil)[:15])
}

// LeaveAll ends all subscriptions, or lets the client stay present until it comes back. It follows the last handler,
// which may still ask for them. address is that of the client, or zero.
func (n *Node) LeaveAll(c Conn, address netip.Prefix) {
	m := c.Member()
	m.mu.Lock()
	defer m.mu.Unlock() // after the last topic, so that EndPresence finds the connection in it or its user away
	m.left = true
	away := n.awayLocked(c, address)
	for _, t := range m.TakeTopicsLocked() {
		if !n.Topics.Stay(t, &m.Subscriber, away, m.goesOn(t.Name)) {
			n.Topics.Remove(t, &m.Subscriber, !m.goesOn(t.Name))
		}
	}
	m.Session().Inner().ForgetIfUnused()
}

// awayLocked returns the Absence of the client of a closed connection, with which it stays present: that of its session,
// or one for the time of PresenceGrace if the way in which the connection was closed permits that. It returns nil if the
// client leaves now.
func (n *Node) awayLocked(c Conn, address netip.Prefix) *present.Absence {
	m, user, inner := c.Member(), c.Identity().User, c.Member().Session().Inner()
	if away := inner.Away(); away != nil {
		return away
	}
	final, leaving := m.closedForGood()
	if !n.Topics.HasGrace || user.UserID == "" || !m.lost || final || leaving || inner != nil && inner.TakenOver() {
		return nil
	}
	return &present.Absence{
		User: present.User(user), Client: &present.Client{Address: address},
		Act: func(_ *present.Absence, do present.Action) { n.LeaveTopics(m, do.Topics) },
	}
}

// LeaveTopics removes a closed connection from topics in which it has stayed present.
func (n *Node) LeaveTopics(m *Member, names []string) {
	for _, name := range names {
		n.Topics.Remove(n.Topics.Find(name), &m.Subscriber, !m.goesOn(name))
	}
}

// EndPresence ends the presence of a connection in topics, where its member would otherwise stay for some time.
func (n *Node) EndPresence(m *Member, matches func(*topic.Topic) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.TopicsLocked() {
		if matches(t) {
			n.Topics.EndPresence(t, &m.Subscriber)
		}
	}
}
