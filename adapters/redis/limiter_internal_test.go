package redis

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/middleware/ratelimit/ratelimittest"
)

// A clock is what limiters under test have in place of the server's clock and of this
// process's.
type clock struct {
	server atomic.Int64 // microseconds since 1970
	local  atomic.Int64 // a time.Duration
}

func newClock() *clock {
	c := &clock{}
	c.server.Store(1_730_000_000_000_000)
	return c
}

func (c *clock) sleep(d time.Duration) {
	c.server.Add(d.Microseconds())
	c.local.Add(int64(d))
}

// stepBack is of the server alone. It takes long enough for what this process knows
// to grow old.
func (c *clock) stepBack(d time.Duration) {
	c.server.Add(-d.Microseconds())
	c.local.Add(int64(2 * recentTime))
}

// timed is a script, but the time is its last argument, and nothing expires, because
// the server's clock goes on.
func timed(t testing.TB, lua string, substitutes map[string]string) *script {
	substitutes["local time = call('TIME')\n"] = ""
	substitutes["local now = time[1] * 1000000 + time[2]\n"] = "local now = tonumber(table.remove(ARGV))\n"
	for old, substitute := range substitutes {
		require.True(t, strings.Contains(lua, old), old)
		lua = strings.Replace(lua, old, substitute, 1)
	}
	return newScript(lua)
}

// timedLimiter makes a limiter whose clock is c.
func timedLimiter(t testing.TB, client goredis.UniversalClient, p ratelimit.Policy, c *clock) *Limiter {
	p.Name = redistest.Prefix(t) + p.Name
	l := NewLimiter(client, p)
	l.script = timed(t, consumeLua, map[string]string{", 'PX', format('%.0f', ceil(micros / 1000))": ""})
	l.now = func() time.Duration { return time.Duration(c.local.Load()) }
	l.time = func() []any { return []any{c.server.Load()} }
	l.joint = timed(t, jointLua, map[string]string{", 'PX', format('%.0f', ceil(micros / 1000))": ""})
	return l
}

func harness(t *testing.T, client goredis.UniversalClient) ratelimittest.Harness {
	c := newClock()
	return ratelimittest.Harness{
		New:      func(p ratelimit.Policy) ratelimit.Limiter { return timedLimiter(t, client, p, c) },
		Sleep:    c.sleep,
		StepBack: c.stepBack,
	}
}

func TestLimiterKeepsTheContract(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		keepsTheContract(t, goredis.NewClient(&goredis.Options{Addr: miniredis.RunT(t).Addr()}))
	})
	t.Run("one node", func(t *testing.T) { keepsTheContract(t, redistest.Any(t)) })
	t.Run("cluster", func(t *testing.T) { keepsTheContract(t, redistest.StartCluster(t).Client(t)) })
}

func keepsTheContract(t *testing.T, client goredis.UniversalClient) {
	for _, c := range ratelimittest.Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, harness(t, client)) })
	}
	for _, c := range ratelimittest.Regressions() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, harness(t, client)) })
	}
	t.Run("all", func(t *testing.T) { ratelimittest.All(t, harness(t, client)) })
	for _, c := range ratelimittest.Cases() {
		t.Run("with another: "+c.Name, func(t *testing.T) { c.Run(t, ratelimittest.WithAnother(harness(t, client))) })
	}
	t.Run("equals the model", func(t *testing.T) { ratelimittest.EqualsModel(t, harness(t, client), 40) })
	t.Run("survives steps back", func(t *testing.T) { ratelimittest.SurvivesStepsBack(t, harness(t, client), 40) })
}

func TestCooldownKeepsItsPromises(t *testing.T) {
	for name, client := range map[string]goredis.UniversalClient{
		"embedded": goredis.NewClient(&goredis.Options{Addr: miniredis.RunT(t).Addr()}),
		"one node": redistest.Any(t),
	} {
		for _, c := range ratelimittest.CooldownCases() {
			t.Run(name+": "+c.Name, func(t *testing.T) {
				clock := newClock()
				c.Run(t, ratelimittest.CooldownHarness{
					New: func(p ratelimit.CooldownPolicy, onPenalty func(ratelimit.Penalty)) ratelimit.Limiter {
						return timedCooldown(t, client, p, onPenalty, clock)
					},
					Sleep: clock.sleep,
				})
			})
		}
	}
}

func timedCooldown(t *testing.T, client goredis.UniversalClient, p ratelimit.CooldownPolicy, onPenalty func(ratelimit.Penalty), c *clock) *Cooldown {
	prefix := redistest.Prefix(t)
	l := NewCooldown(client, p, onPenalty)
	l.prefix += prefix
	l.flights.carry = carrier(client, timed(t, cooldownLua, map[string]string{", 'PX', format('%.0f', math.ceil(reset() / 1000))": ""}), 4)
	l.now = func() time.Duration { return time.Duration(c.local.Load()) }
	l.time = func() []any { return []any{c.server.Load()} }
	return l
}
