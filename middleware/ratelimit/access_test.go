package ratelimit_test

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func user(name string) limit.Key { return limit.Key{"user", "", name} }

// newAccess returns a limit of one message per hour with an access list.
func newAccess(t *testing.T, rules ratelimit.AccessRules, opts ratelimit.Options) (*ratelimit.AccessList, router.IngressFunc) {
	list := &ratelimit.AccessList{}
	require.NoError(t, list.Replace(rules))
	opts.Access = list
	return list, ratelimit.New(memory.NewLimiter(limit.PerHour(1)), &opts)
}

func TestAccessList_AllowsAndDeniesClients(t *testing.T) {
	list, admit := newAccess(t, ratelimit.AccessRules{
		Allow:     prefixes("10.0.0.0/8", "2001:db8::/32", "198.51.100.7/32"),
		Deny:      prefixes("10.66.0.0/16", "2001:db8:bad::/48", "198.51.100.7/32", "0.0.0.0/1"),
		AllowKeys: []limit.Key{user("admin"), user("both")},
		DenyKeys:  []limit.Key{user("eve"), user("both")},
	}, ratelimit.Options{})
	const limited, exempt, denied = "limited", "exempt", "denied"
	for _, tt := range []struct{ ip, user, want string }{
		{"192.0.2.1", "", limited},
		{"10.1.2.3", "", exempt},
		{"::ffff:10.1.2.3", "", exempt},
		{"10.66.2.3", "", denied},
		{"9.1.2.3", "", denied},
		{"2001:db8::1", "", exempt},
		{"2001:db8::1%eth0", "", exempt},
		{"2001:db8:bad:0:ffff:ffff:ffff:ffff%eth0", "", denied},
		{"2001:db8:bad:ffff:ffff:ffff:ffff:ffff%eth0", "", denied},
		{"2001:db8:bad::1", "", denied},
		{"2001:db9::1", "", limited},
		{"198.51.100.7", "", denied},
		{"192.0.2.9", "admin", exempt},
		{"10.66.2.3", "admin", exempt},
		{"10.1.2.3", "eve", denied},
		{"10.1.2.3", "both", denied},
		{"192.0.2.9", "ann", limited},
	} {
		in := router.IngressContext{Type: "SAY", IP: netip.MustParseAddr(tt.ip), Identity: router.Identity{UserID: tt.user}}
		got := exempt
		for range 2 {
			switch err := admit(t.Context(), in); {
			case errors.CodeOf(err) == errors.PermissionDenied:
				got = denied
			case err != nil:
				got = limited
			}
		}
		assert.Equal(t, tt.want, got, "%v", tt)
		assert.Equal(t, tt.want == denied, list.Ingress(t.Context(), in) != nil, "%v", tt)
	}
	nowhere := router.IngressContext{ConnID: "c1"}
	require.NoError(t, admit(t.Context(), nowhere))
	require.Error(t, admit(t.Context(), nowhere), "a client without an address is limited")
}

func TestAccessList_InvalidPrefixKeepsRules(t *testing.T) {
	list, admit := newAccess(t, ratelimit.AccessRules{Deny: prefixes("192.0.2.0/24")}, ratelimit.Options{})
	for _, invalid := range []netip.Prefix{{}, netip.PrefixFrom(netip.MustParseAddr("::ffff:10.0.0.0"), 104)} {
		err := list.Replace(ratelimit.AccessRules{Deny: append(prefixes("10.0.0.0/8"), invalid)})
		require.ErrorContains(t, err, "ratelimit: prefix 1 of AccessRules.Deny is")
	}
	require.Equal(t, errors.PermissionDenied, errors.CodeOf(admit(t.Context(), from("ann"))))
	require.NoError(t, list.Replace(ratelimit.AccessRules{}))
	require.NoError(t, admit(t.Context(), from("ann")))
	require.NoError(t, (&ratelimit.AccessList{}).Ingress(t.Context(), from("ann")), "the zero list names no client")
}

func TestAccessList_KeySelectsTheListedKey(t *testing.T) {
	list := &ratelimit.AccessList{Key: func(in router.IngressContext) limit.Key { return limit.Key{"tenant", in.Identity.TenantID} }}
	require.NoError(t, list.Replace(ratelimit.AccessRules{DenyKeys: []limit.Key{{"tenant", "acme"}}}))
	in := from("ann")
	require.NoError(t, list.Ingress(t.Context(), in))
	in.Identity.TenantID = "acme"
	require.Error(t, list.Ingress(t.Context(), in))
}

// TestAccessList_ReplacedAtRunTime replaces the rules while messages arrive. A client is always
// allowed or denied, and never limited.
func TestAccessList_ReplacedAtRunTime(t *testing.T) {
	allow := ratelimit.AccessRules{Allow: prefixes("192.0.2.0/24")}
	list, admit := newAccess(t, allow, ratelimit.Options{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 500 {
			assert.NoError(t, list.Replace(ratelimit.AccessRules{DenyKeys: []limit.Key{user("ann")}}))
			assert.NoError(t, list.Replace(allow))
		}
	})
	for range 5000 {
		if err := admit(t.Context(), from("ann")); err != nil {
			assert.Equal(t, errors.PermissionDenied, errors.CodeOf(err))
		}
	}
	wg.Wait()
}

func TestAccessList_ObservedAndAdmittedInDryRun(t *testing.T) {
	for _, dryRun := range []bool{false, true} {
		var seen []ratelimit.Observation
		_, admit := newAccess(t, ratelimit.AccessRules{AllowKeys: []limit.Key{user("admin")}, DenyKeys: []limit.Key{user("eve")}},
			ratelimit.Options{Name: "chat", DryRun: dryRun, Observe: func(o ratelimit.Observation) { seen = append(seen, o) }})
		assert.NoError(t, admit(t.Context(), from("admin")))
		assert.Equal(t, !dryRun, admit(t.Context(), from("eve")) != nil)
		assert.Equal(t, []ratelimit.Observation{
			{Limit: "chat", Kind: router.LimitRate, Outcome: ratelimit.Exempt, DryRun: dryRun},
			{Limit: "chat", Kind: router.LimitRate, Outcome: ratelimit.Denied, DryRun: dryRun},
		}, seen)
	}
}

func TestAccessList_ExemptMessagesChargeNoTier(t *testing.T) {
	list := &ratelimit.AccessList{}
	require.NoError(t, list.Replace(ratelimit.AccessRules{AllowKeys: []limit.Key{user("admin")}, DenyKeys: []limit.Key{user("eve")}}))
	pro := memory.NewLimiter(limit.PerHour(5))
	admit := ratelimit.Tiers(func(router.IngressContext) string { return "free" }, map[string]limit.Limiter{
		"free": memory.NewLimiter(limit.PerHour(1)), "pro": pro,
	}, &ratelimit.Options{Key: ratelimit.KeyPerUser, Access: list})
	for range 3 {
		require.NoError(t, admit(t.Context(), from("admin")))
		require.Equal(t, errors.PermissionDenied, errors.CodeOf(admit(t.Context(), from("eve"))))
	}
	for _, name := range []string{"admin", "eve"} {
		d, err := limit.Consume(t.Context(), pro, user(name), 0)
		require.NoError(t, err)
		assert.EqualValues(t, 5, d.Remaining)
	}
}

func TestAccessList_RejectsHTTPRequestsWithForbidden(t *testing.T) {
	list := &ratelimit.AccessList{}
	require.NoError(t, list.Replace(ratelimit.AccessRules{Deny: prefixes("192.0.2.0/24"), Allow: prefixes("198.51.100.0/24")}))
	h := ratelimit.HTTP(memory.NewLimiter(limit.PerHour(1)), &ratelimit.HTTPOptions{Options: ratelimit.Options{Access: list}})(ok)
	denied := attempt(h, "192.0.2.1:1", nil)
	assert.Equal(t, 403, denied.StatusCode)
	assert.NotContains(t, denied.Header, "Ratelimit")
	for range 3 {
		assert.Equal(t, 200, attempt(h, "198.51.100.1:1", nil).StatusCode)
	}
	assert.Equal(t, 200, attempt(h, "203.0.113.1:1", nil).StatusCode)
	assert.Equal(t, 429, attempt(h, "203.0.113.1:1", nil).StatusCode)
}

// TestAccessList_AloneAnswersWithPermissionDenied uses a list as an ingress function of a router.
func TestAccessList_AloneAnswersWithPermissionDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := &ratelimit.AccessList{Key: func(in router.IngressContext) limit.Key { return limit.Key{in.Type} }}
		r := router.New(&router.Options{OnError: func(router.ErrorReport) {}})
		r.UseIngress(list.Ingress)
		router.RPC(r, func(*router.Context, Render) (Rendered, error) { return Rendered{}, nil })
		client := routertest.Dial(t, r)
		routertest.Call[Rendered](client, Render{})
		require.NoError(t, list.Replace(ratelimit.AccessRules{DenyKeys: []limit.Key{{"RENDER"}}}))
		assert.Equal(t, &errors.Error{Code: errors.PermissionDenied, Message: "access is denied"}, routertest.CallError(client, Render{}))
	})
}

// TestAccessList_LookupAllocatesNothing uses 100,000 prefixes.
func TestAccessList_LookupAllocatesNothing(t *testing.T) {
	var deny []netip.Prefix
	for i := range 100_000 {
		deny = append(deny, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
	}
	list := &ratelimit.AccessList{}
	require.NoError(t, list.Replace(ratelimit.AccessRules{Deny: deny}))
	in := from("ann")
	in.IP = netip.MustParseAddr("10.1.2.3")
	ctx := context.Background()
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if list.Ingress(ctx, in) == nil {
			t.Fatal("admitted")
		}
	}))
}
