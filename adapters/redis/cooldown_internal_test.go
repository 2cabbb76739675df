package redis

import (
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/internal/batch/batchtest"
	"github.com/penstock-go/penstock/internal/redisclient"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/limittest"
)

// useClock makes a limiter's clocks those of c, and its records those of a test.
func (r *records) useClock(t testing.TB, lua, prefix string, c *batchtest.Clock) {
	r.prefix += prefix
	r.oneNode = false // TestJoint_EqualsLimitersInMemory has calls to several limiters
	lua = strings.ReplaceAll(recordBlockLua+leaseFunctionsLua()+lua, "  call('PEXPIRE', KEYS[1], format('%.0f', millis))\n", "")
	r.calls = redisclient.NewBatcher(r.name, r.client, withTimeArgument(t, lua, ", 'PX', format('%.0f', millis)"), 8)
	r.blocks = redisclient.NewBatcher(r.name, r.client, withTimeArgument(t, recordSetBlockLua, ", 'PX', format('%.0f', millis)"), 0)
	r.now = func() time.Duration { return time.Duration(c.Local.Load()) }
	r.time = func() []any { return []any{c.Server.Load()} }
}

// testRecords calls test with each kind of server, or with one of them in the quick tier.
func testRecords(t *testing.T, test func(*testing.T, goredis.UniversalClient)) {
	t.Run("one node", func(t *testing.T) { test(t, redistest.Shared(t)) })
	if !testscale.Pick(false, true) {
		return
	}
	t.Run("cluster", func(t *testing.T) { test(t, redistest.StartCluster(t).Client(t)) })
}

func cooldownHarness(t *testing.T, client goredis.UniversalClient) limittest.CooldownHarness {
	clock, prefix := batchtest.NewClock(), redistest.Prefix(t)
	return limittest.CooldownHarness{
		New: func(p limit.CooldownPolicy, onPenalty func(limit.Penalty)) limit.Limiter {
			c := NewCooldown(client, p, onPenalty)
			c.records.useClock(t, slidingLogLua, prefix, clock)
			return c
		},
		Sleep:  clock.Sleep,
		Rewind: clock.Rewind,
		Rounds: testRounds(t),
	}
}

// testRounds returns fewer rounds for servers that execute the same scripts as a node on its own. 0
// is the default.
func testRounds(t *testing.T) int {
	if strings.Contains(t.Name(), "/one_node/") {
		return testscale.Tiers(1, 5, 0)
	}
	return testscale.Tiers(2, 2, 0)
}

func TestCooldown_Contract(t *testing.T) {
	t.Parallel()
	testRecords(t, func(t *testing.T, client goredis.UniversalClient) {
		for _, c := range limittest.CooldownCases() {
			t.Run(c.Name, func(t *testing.T) { c.Run(t, cooldownHarness(t, client)) })
		}
	})
}
