package internal_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/access"
	"github.com/penstock-go/penstock/internal/session"
	"github.com/penstock-go/penstock/internal/topicname"
)

// TestParse_RefusesOtherBytes has what later versions, and faulty nodes, may send.
func TestParse_RefusesOtherBytes(t *testing.T) {
	for name, packet := range map[string]string{
		"nothing":                 "",
		"an unknown kind":         "\x0a\x01t\x01u",
		"a session":               "\x07\x01t\x01u",
		"a stored packet":         "\x09\x02\x01t\x01u",
		"no tenant":               "\x02",
		"a tenant that is cut":    "\x02\x05t",
		"no user":                 "\x02\x01t",
		"an empty user":           "\x02\x01t\x00message",
		"no code":                 "\x03\x01t\x01u",
		"a code above 4999":       "\x03\x01t\x01u\x88\x27",
		"a code that is too long": "\x03\x01t\x01u\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"no sequence":             "\x06\x01t\x01u",
		"one sequence":            "\x06\x01t\x01u\x01",
		"no topic":                "\x06\x01t\x01u\x01\x02",
		"a topic that is no name": "\x06\x01t\x01u\x01\x02a\xff",
	} {
		_, ok := access.ParsePacket([]byte(packet))
		assert.False(t, ok, name)
	}
}

// TestParse_ReturnsWhatWasEncoded also has the bytes, which other versions read.
func TestParse_ReturnsWhatWasEncoded(t *testing.T) {
	user := session.User{TenantID: "t", UserID: "us"}
	change := session.Change{Previous: 1, Seq: math.MaxUint64}
	for _, tt := range []struct {
		packet []byte
		bytes  string
		want   access.Packet
	}{
		{access.NewMessage(user, []byte("m")), "\x02\x01t\x02usm", access.Packet{Kind: access.PacketMessage, Message: []byte("m")}},
		{access.NewDisconnect(user, 4999, "bye"), "\x03\x01t\x02us\x87\x27bye", access.Packet{Kind: access.PacketDisconnect, Code: 4999, Reason: "bye"}},
		{access.NewDisconnect(user, 0, ""), "\x03\x01t\x02us\x00", access.Packet{Kind: access.PacketDisconnect}},
		{access.NewRevocation(user, change, "a/{b}"), "\x06\x01t\x02us\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a/{b}", access.Packet{
			Kind: access.PacketRevocation, Change: change, Topics: topicname.NewMatcher("a/{b}"),
		}},
	} {
		assert.Equal(t, tt.bytes, string(tt.packet))
		got, ok := access.ParsePacket(tt.packet)
		require.True(t, ok)
		tt.want.User = user
		assert.Equal(t, tt.want, got)
	}
}
