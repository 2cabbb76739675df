package router

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/envelope"
)

// This file announces the members of this node to the others.

// memberData is what other nodes must know about a member besides its ID.
type memberData struct {
	TenantID string `json:"tenantId,omitempty"`
	UserID   string `json:"userId,omitempty"`
	Info     string `json:"info,omitempty"`
	Ended    bool   `json:"ended,omitzero"` // it leaves for good: the client has closed its connection, for example
}

func encodeMember(m Member, ended bool) string {
	data, _ := envelope.MarshalJSON(memberData{m.TenantID, m.UserID, m.Info, ended}) // strings can always be encoded
	return string(data)
}

// An announcedMember is a member as its node announces it.
type announcedMember struct {
	Member

	stays time.Duration // how long it stays if its node ends
	ended bool
}

// announcedID returns the ID under which a member is announced. It contains how long the member
// stays if its node ends, because replacing an ID is no change for others, and replacing the data
// of one would be.
func announcedID(connID string, staysMs int32) string {
	if staysMs == 0 {
		return connID
	}
	return connID + " " + strconv.Itoa(int(staysMs))
}

// parseMember returns false if the data is malformed.
func parseMember(m broker.Member) (a announcedMember, ok bool) {
	var data memberData
	if err := envelope.UnmarshalJSON([]byte(m.Data), &data); err != nil {
		return announcedMember{}, false
	}
	connID, staysMs, stays := strings.Cut(m.ID, " ")
	a = announcedMember{Member: Member{connID, data.TenantID, data.UserID, data.Info}, ended: data.Ended}
	if stays {
		ms, err := strconv.ParseInt(staysMs, 10, 32)
		if err != nil || ms < 0 {
			return announcedMember{}, false
		}
		a.stays = time.Duration(ms) * time.Millisecond
	}
	return a, true
}

// notAnnounced is the member.staysMs of a member that this node does not announce.
const notAnnounced = -1

// announceLocked announces a member of this node. It must be called with t.mu held.
func (ts *topics) announceLocked(t *topic, m *member, staysMs int32) {
	session, before := ts.router.node, m.staysMs
	m.staysMs = staysMs
	session.Join(t.name, announcedID(m.ConnID, staysMs), encodeMember(m.Member, false))
	if before != notAnnounced && before != staysMs {
		session.Leave(t.name, announcedID(m.ConnID, before))
	}
}

// withdrawLocked ends the announcement of a member. Unless it is final, other nodes wait for
// another node that announces the member. It must be called with t.mu held.
func (ts *topics) withdrawLocked(t *topic, m *member, final bool) {
	session, id := ts.router.node, announcedID(m.ConnID, m.staysMs)
	if final && m.staysMs > 0 {
		session.Join(t.name, id, encodeMember(m.Member, true))
	}
	m.staysMs = notAnnounced
	session.Leave(t.name, id)
}

// member returns the connection as a member of a topic, and how long that stays if the node ends.
func (c *Conn) member(t *topic, info string) (m Member, staysMs int32) {
	identity, grace := c.Identity(), t.pattern.opts.PresenceGrace
	m = Member{ConnID: c.id, TenantID: identity.TenantID, UserID: identity.UserID, Info: info}
	var stays time.Duration
	if s := c.session(); s != nil {
		m.ConnID = s.memberID
		if !s.isOver() {
			stays = c.router.opts.Resume.Within
		}
	}
	if grace > 0 && identity.UserID != "" {
		m.ConnID, stays = userMemberID(identity.user()), max(stays, grace)
	}
	return m, int32(min(stays.Milliseconds(), math.MaxInt32)) //nolint:gosec // it is bounded
}

// userMemberID returns the Member.ConnID of a user in topics with a PresenceGrace. It contains a
// character that no ID of a connection has.
func userMemberID(user userKey) string {
	hash := sha256.New()
	_, _ = hash.Write(binary.AppendUvarint(nil, uint64(len(user.tenantID))))
	_, _ = hash.Write([]byte(user.tenantID + user.userID))
	return "user-" + base32.StdEncoding.EncodeToString(hash.Sum(nil)[:15])
}
