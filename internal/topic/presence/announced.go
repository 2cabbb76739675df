package presence

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/jsonplan"
	"github.com/penstock-go/penstock/internal/protocol"
)

// This file has what nodes announce of their members.

// memberData is what other nodes must know about a member besides its ID.
type memberData struct {
	TenantID string `json:"tenantId,omitempty"`
	UserID   string `json:"userId,omitempty"`
	Info     string `json:"info,omitempty"`
	Ended    bool   `json:"ended,omitzero"` // it leaves for good: the client has closed its connection, for example
}

func encodeMember(m protocol.Member, ended bool) string {
	data, _ := jsonplan.Append(nil, memberData{m.TenantID, m.UserID, m.Info, ended}) // strings can always be encoded
	return string(data)
}

// An Announced is a member as its node announces it.
type Announced struct {
	protocol.Member

	Stays time.Duration // how long it stays if its node ends
	ended bool
}

// staysMs returns how long the member stays, in milliseconds.
func (a Announced) staysMs() int32 {
	return int32(min(a.Stays.Milliseconds(), math.MaxInt32)) //nolint:gosec // it is bounded
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
func parseMember(m broker.Member) (a Announced, ok bool) {
	var data memberData
	if err := jsonplan.Unmarshal([]byte(m.Data), &data); err != nil {
		return Announced{}, false
	}
	connID, staysMs, stays := strings.Cut(m.ID, " ")
	a = Announced{Member: protocol.Member{ConnID: connID, TenantID: data.TenantID, UserID: data.UserID, Info: data.Info}, ended: data.Ended}
	if stays {
		ms, err := strconv.ParseInt(staysMs, 10, 32)
		if err != nil || ms < 0 {
			return Announced{}, false
		}
		a.Stays = time.Duration(ms) * time.Millisecond
	}
	return a, true
}

// notAnnounced is the member.staysMs of a member that this node does not announce.
const notAnnounced = -1

// announce announces a member of this node.
func (e *Effects) announce(m *member, staysMs int32) {
	before := m.staysMs
	m.staysMs = staysMs
	e.Announce = append(e.Announce, Announcement{announcedID(m.ConnID, staysMs), encodeMember(m.Member, false), true})
	if before != notAnnounced && before != staysMs {
		e.Announce = append(e.Announce, Announcement{ID: announcedID(m.ConnID, before)})
	}
}

// withdraw ends the announcement of a member. Unless it is final, other nodes wait for another node
// that announces the member.
func (e *Effects) withdraw(m *member, final bool) {
	id := announcedID(m.ConnID, m.staysMs)
	if final && m.staysMs > 0 {
		e.Announce = append(e.Announce, Announcement{id, encodeMember(m.Member, true), true})
	}
	m.staysMs = notAnnounced
	e.Announce = append(e.Announce, Announcement{ID: id})
}
