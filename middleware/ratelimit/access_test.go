package ratelimit_test

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/limit/observe"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func user(name string) limit.Key { return limit.Key{"user", "", name} }

// newAccess returns a limit of one message per hour with an access list.
func newAccess(t *testing.T, rules access.Rules, opts ratelimit.Options) router.IngressFunc {
	opts.Access = &access.List{}
	require.NoError(t, opts.Access.Replace(rules))
	return ratelimit.New(memory.NewLimiter(limit.PerHour(1)), &opts)
}

func TestAccess_KeySelectsTheListedKey(t *testing.T) {
	list := &access.List{}
	require.NoError(t, list.Replace(access.Rules{DenyKeys: []limit.Key{{"tenant", "acme"}}}))
	perTenant := func(in router.IngressContext) limit.Key { return limit.Key{"tenant", in.Identity.TenantID} }
	for _, admit := range []router.IngressFunc{
		ratelimit.Access(list, perTenant),
		ratelimit.New(memory.NewLimiter(limit.PerHour(9)), &ratelimit.Options{Access: list, AccessKey: perTenant}),
	} {
		in := from("ann")
		require.NoError(t, admit(t.Context(), in))
		in.Identity.TenantID = "acme"
		require.Equal(t, errors.PermissionDenied, errors.CodeOf(admit(t.Context(), in)))
	}
	assert.PanicsWithValue(t, "ratelimit: Access needs a list", func() { ratelimit.Access(nil, nil) })
}

func TestAccess_ObservedAndAdmittedInDryRun(t *testing.T) {
	for _, dryRun := range []bool{false, true} {
		var seen []observe.Observation
		admit := newAccess(t, access.Rules{AllowKeys: []limit.Key{user("admin")}, DenyKeys: []limit.Key{user("eve")}},
			ratelimit.Options{Name: "chat", DryRun: dryRun, Observe: func(o observe.Observation) { seen = append(seen, o) }})
		assert.NoError(t, admit(t.Context(), from("admin")))
		assert.Equal(t, !dryRun, admit(t.Context(), from("eve")) != nil)
		assert.Equal(t, []observe.Observation{
			{Limit: "chat", Kind: observe.Rate, Outcome: observe.Exempt, DryRun: dryRun},
			{Limit: "chat", Kind: observe.Rate, Outcome: observe.Denied, DryRun: dryRun},
		}, seen)
	}
}

func TestAccess_ExemptMessagesChargeNoTier(t *testing.T) {
	list := &access.List{}
	require.NoError(t, list.Replace(access.Rules{AllowKeys: []limit.Key{user("admin")}, DenyKeys: []limit.Key{user("eve")}}))
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

// TestAccess_AloneAnswersWithPermissionDenied uses a list as an ingress function of a router.
func TestAccess_AloneAnswersWithPermissionDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := &access.List{}
		r := router.New(&router.Options{OnError: func(router.ErrorReport) {}})
		r.UseIngress(ratelimit.Access(list, func(in router.IngressContext) limit.Key { return limit.Key{in.Type} }))
		router.RPC(r, func(*router.Context, Render) (Rendered, error) { return Rendered{}, nil })
		client := routertest.Dial(t, r)
		routertest.Call[Rendered](client, Render{})
		require.NoError(t, list.Replace(access.Rules{DenyKeys: []limit.Key{{"RENDER"}}}))
		assert.Equal(t, &errors.Error{Code: errors.PermissionDenied, Message: "access is denied"}, routertest.CallError(client, Render{}))
	})
}

// TestAccess_LookupAllocatesNothing uses 100,000 prefixes.
func TestAccess_LookupAllocatesNothing(t *testing.T) {
	var deny []netip.Prefix
	for i := range 100_000 {
		deny = append(deny, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32))
	}
	list := &access.List{}
	require.NoError(t, list.Replace(access.Rules{Deny: deny}))
	in := from("ann")
	in.IP = netip.MustParseAddr("10.1.2.3")
	ctx, check := context.Background(), ratelimit.Access(list, nil)
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if check(ctx, in) == nil {
			t.Fatal("admitted")
		}
	}))
}
