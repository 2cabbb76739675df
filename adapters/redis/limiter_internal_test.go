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
	c.local.Add(int64(2 * denialTime))
}

// timedLua is the script, but the time is its last argument, and buckets do not
// expire, because the server's clock goes on.
func timedLua(t testing.TB) string {
	lua := consumeLua
	for old, substitute := range map[string]string{
		"local time = call('TIME')\n":                 "",
		"local now = time[1] * 1000000 + time[2]\n":   "local now = tonumber(table.remove(ARGV))\n",
		", 'PX', format('%.0f', ceil(micros / 1000))": "",
	} {
		require.True(t, strings.Contains(lua, old), old)
		lua = strings.Replace(lua, old, substitute, 1)
	}
	return lua
}

// timed makes a limiter whose clock is c.
func timed(t testing.TB, client goredis.UniversalClient, p ratelimit.Policy, c *clock) *Limiter {
	p.Name = redistest.Prefix(t) + p.Name
	l := NewLimiter(client, p)
	l.script = newScript(timedLua(t))
	l.now = func() time.Duration { return time.Duration(c.local.Load()) }
	l.time = func() []any { return []any{c.server.Load()} }
	return l
}

func harness(t *testing.T, client goredis.UniversalClient) ratelimittest.Harness {
	c := newClock()
	return ratelimittest.Harness{
		New:      func(p ratelimit.Policy) ratelimit.Limiter { return timed(t, client, p, c) },
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
	t.Run("equals the model", func(t *testing.T) { ratelimittest.EqualsModel(t, harness(t, client), 40) })
	t.Run("survives steps back", func(t *testing.T) { ratelimittest.SurvivesStepsBack(t, harness(t, client), 40) })
}
