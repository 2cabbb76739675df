package access_test

import (
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func user(name string) limit.Key { return limit.Key{"user", "", name} }

func TestList_InvalidPrefixKeepsRules(t *testing.T) {
	client := netip.MustParseAddr("192.0.2.1")
	var list access.List
	require.Equal(t, access.Limited, list.Lookup(user("ann"), client), "the zero list names no client")
	require.NoError(t, list.Replace(access.Rules{Deny: prefixes("192.0.2.0/24")}))
	for _, invalid := range []netip.Prefix{{}, netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104)} {
		err := list.Replace(access.Rules{Deny: append(prefixes("10.0.0.0/8"), invalid)})
		require.ErrorContains(t, err, "access: prefix 1 of Rules.Deny is")
		err = list.Replace(access.Rules{Allow: []netip.Prefix{invalid}})
		require.ErrorContains(t, err, "access: prefix 0 of Rules.Allow is")
	}
	require.Equal(t, access.Denied, list.Lookup(user("ann"), client))
	require.Equal(t, access.Limited, list.Lookup(user("ann"), netip.MustParseAddr("10.0.0.1")))
	require.NoError(t, list.Replace(access.Rules{}))
	require.Equal(t, access.Limited, list.Lookup(user("ann"), client))
}

func TestList_AllowsAndDeniesClients(t *testing.T) {
	var list access.List
	require.NoError(t, list.Replace(access.Rules{
		Allow:     prefixes("10.0.0.0/8", "2001:db8::/32", "198.51.100.7/32"),
		Deny:      prefixes("10.66.0.0/16", "2001:db8:bad::/48", "198.51.100.7/32", "0.0.0.0/1"),
		AllowKeys: []limit.Key{user("admin"), user("both")},
		DenyKeys:  []limit.Key{user("eve"), user("both")},
	}))
	for _, tt := range []struct {
		ip, user string
		want     access.Access
	}{
		{"192.0.2.1", "", access.Limited},
		{"10.1.2.3", "", access.Allowed},
		{"::ffff:10.1.2.3", "", access.Allowed},
		{"10.66.2.3", "", access.Denied},
		{"9.1.2.3", "", access.Denied},
		{"2001:db8::1", "", access.Allowed},
		{"2001:db8::1%eth0", "", access.Allowed},
		{"2001:db8:bad:0:ffff:ffff:ffff:ffff%eth0", "", access.Denied},
		{"2001:db8:bad:ffff:ffff:ffff:ffff:ffff%eth0", "", access.Denied},
		{"2001:db8:bad::1", "", access.Denied},
		{"2001:db9::1", "", access.Limited},
		{"198.51.100.7", "", access.Denied},
		{"192.0.2.9", "admin", access.Allowed},
		{"10.66.2.3", "admin", access.Allowed},
		{"10.1.2.3", "eve", access.Denied},
		{"10.1.2.3", "both", access.Denied},
		{"192.0.2.9", "ann", access.Limited},
	} {
		assert.Equal(t, tt.want, list.Lookup(user(tt.user), netip.MustParseAddr(tt.ip)), "%v", tt)
	}
	assert.Equal(t, access.Limited, list.Lookup(user("ann"), netip.Addr{}), "a client without an address is limited")
	assert.Equal(t, access.Denied, list.Lookup(user("eve"), netip.Addr{}), "unless its key is listed")
}

// TestList_ReplacedAtRunTime replaces the rules while clients arrive. A client is always allowed or
// denied, and never limited.
func TestList_ReplacedAtRunTime(t *testing.T) {
	var list access.List
	allow := access.Rules{Allow: prefixes("192.0.2.0/24")}
	require.NoError(t, list.Replace(allow))
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 500 {
			assert.NoError(t, list.Replace(access.Rules{DenyKeys: []limit.Key{user("ann")}}))
			assert.NoError(t, list.Replace(allow))
		}
	})
	for range 5000 {
		assert.NotEqual(t, access.Limited, list.Lookup(user("ann"), netip.MustParseAddr("192.0.2.1")))
	}
	wg.Wait()
}
