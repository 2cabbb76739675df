package redis

import (
	"context"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/batch"
	"github.com/penstock-go/penstock/internal/batch/batchtest"
	"github.com/penstock-go/penstock/internal/keyname"
	"github.com/penstock-go/penstock/internal/redisclient"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

// withTimeArgument returns a script that takes the time from its last argument and sets no
// expiry, because the server's real clock goes on.
func withTimeArgument(t testing.TB, lua string, expiries ...string) *redisclient.Script {
	substitutes := map[string]string{
		"local time = call('TIME')\n":               "",
		"local now = time[1] * 1000000 + time[2]\n": "local now = tonumber(table.remove(ARGV))\n",
	}
	for _, expiry := range expiries {
		substitutes[expiry] = ""
	}
	for old, substitute := range substitutes {
		require.True(t, strings.Contains(lua, old), old)
		lua = strings.ReplaceAll(lua, old, substitute)
	}
	return redisclient.NewScript(lua)
}

// newTestLimiter returns a limiter whose clock is c, and whose keys contain a prefix.
func newTestLimiter(t testing.TB, client goredis.UniversalClient, p limit.Policy, c *batchtest.Clock, prefix string) *Limiter {
	l := NewLimiter(client, p)
	l.buckets.prefix = keyname.Join("penstock:limit", []string{prefix + keyname.OfPolicy(p)})
	script := func(lua string) *redisclient.Script { return withTimeArgument(t, bucketLua(lua), bucketExpiries[:]...) }
	l.buckets.consumeOne, l.buckets.consumeMany = script(limiterConsumeOneLua), script(limiterConsumeManyLua)
	l.buckets.parts = redisclient.NewBatcher("redis: limiter", client, script(leasesChangeLua+limiterConsumePartLua), partNumbers)
	l.buckets.joints.buckets = redisclient.NewBatcher("redis: limiter", client, script(limiterConsumeMultiLua), redisclient.AnyNumber)
	l.buckets.joints.all = newTestJoints(t, client, c)
	l.buckets.settlements = redisclient.NewBatcher("redis: limiter", client, script(leasesChangeLua+limiterSettleLua), 0)
	l.buckets.blocks = redisclient.NewBatcher("redis: limiter", client, script(limiterBlockLua), 0)
	l.buckets.now = func() time.Duration { return time.Duration(c.Local.Load()) }
	l.buckets.time = func() []any { return []any{c.Server.Load()} }
	return l
}

// bucketExpiries are the expiries in the scripts for buckets.
var bucketExpiries = [...]string{", 'PX', format('%.0f', ceil(micros / 1000))", ", 'PX', format('%.0f', ceil(left / 1000))"}

// newTestJoints calls limiters whose clock is c together.
func newTestJoints(t testing.TB, client goredis.UniversalClient, c *batchtest.Clock) *redisclient.Batcher {
	lua, now := jointSource(), "= redis, redis.call('TIME')\n"
	require.Contains(t, lua, now)
	lua = strings.Replace(lua, now, "= redis, { 0, table.remove(ARGV) }\n", 1)
	for _, expiry := range bucketExpiries {
		lua = strings.ReplaceAll(lua, expiry, "")
	}
	script := redisclient.NewScript(lua)
	return batch.New("redis: limiter", batch.LimiterTimeout, func(ctx context.Context, calls []*redisclient.Call) {
		for _, call := range calls {
			args := append(call.Request, c.Server.Load())
			call.Response, call.Err = script.Run(ctx, client, [][]any{args})[0].Int64Slice()
		}
	}, false)
}

func harness(t *testing.T, client goredis.UniversalClient) limittest.Harness {
	c, prefix := batchtest.NewClock(), redistest.Prefix(t)
	return limittest.Harness{
		New:    func(p limit.Policy) limit.Limiter { return newTestLimiter(t, client, p, c, prefix) },
		Shared: true,
		Sleep:  c.Sleep,
		Rewind: c.Rewind,
	}
}

func TestLimiter_Contract(t *testing.T) {
	t.Parallel()
	t.Run("one node", func(t *testing.T) {
		testscale.FullOnly(t, "TestLimiter_KeepsRandomRules")
		t.Parallel()
		testContract(t, redistest.Shared(t), limittest.Cases(), testscale.SoakSample(limittest.Cases(), 10), testscale.Tiers(4, 4, 20))
	})
	t.Run("cluster", func(t *testing.T) {
		testscale.FullOnly(t, "TestLimiter_KeepsRandomRules")
		t.Parallel()
		testPartOfContract(t, redistest.StartCluster(t).Client(t))
	})
}

// TestLimiter_KeepsRandomRules tests a part of the contract on one node.
func TestLimiter_KeepsRandomRules(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t)
	for _, c := range testscale.Sample(limittest.Cases(), 12) {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, harness(t, client)) })
	}
	t.Run("policies change", func(t *testing.T) { limittest.PolicyChanges(t, harness(t, client), 2) })
	t.Run("equals the model", func(t *testing.T) { limittest.EqualsModel(t, harness(t, client), 2) })
}

// testPartOfContract tests a part of the contract, which changes from run to run, on a server that
// executes the same scripts as a node on its own.
func testPartOfContract(t *testing.T, client goredis.UniversalClient) {
	cases := limittest.Cases()
	testContract(t, client, testscale.SoakSample(cases, 10), testscale.SoakSample(cases, 5), 4)
}

// testContract tests cases of a limiter alone, and others of AllOf with it.
func testContract(t *testing.T, client goredis.UniversalClient, cases, joint []limittest.Case, groups int) {
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, harness(t, client)) })
	}
	for _, c := range limittest.Regressions() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, harness(t, client)) })
	}
	t.Run("AllOf", func(t *testing.T) { limittest.AllOf(t, harness(t, client)) })
	for _, c := range joint {
		if c.Name == "concurrent joint requests" {
			continue // needs refunds, which a slow server may not execute in time
		}
		t.Run("in AllOf: "+c.Name, func(t *testing.T) { c.Run(t, limittest.WithAllOf(harness(t, client))) })
	}
	t.Run("policies change", func(t *testing.T) { limittest.PolicyChanges(t, harness(t, client), groups) })
	t.Run("equals the model", func(t *testing.T) { limittest.EqualsModel(t, harness(t, client), groups) })
	t.Run("clock goes backwards", func(t *testing.T) { limittest.ClockGoesBackwards(t, harness(t, client), groups) })
}
