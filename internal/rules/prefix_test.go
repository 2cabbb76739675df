package rules_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/rules"
)

func TestOf_MapsIPv6To64AndIPv4To32(t *testing.T) {
	for ip, want := range map[string]string{
		"192.0.2.1":         "192.0.2.1/32",
		"2001:db8:1:2:3::4": "2001:db8:1:2::/64",
		"2001:db8:1:2::":    "2001:db8:1:2::/64",
		"::1":               "::/64",
		"::ffff:192.0.2.1":  "192.0.2.1/32",
		"fe80::1%eth0":      "fe80::/64",
	} {
		assert.Equal(t, netip.MustParsePrefix(want), rules.PrefixOf(netip.MustParseAddr(ip)), ip)
	}
	assert.False(t, rules.PrefixOf(netip.Addr{}).IsValid())
}
