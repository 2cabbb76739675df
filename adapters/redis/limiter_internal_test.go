package redis

import (
	"bytes"
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
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
func timed(t testing.TB, lua, expiry string) *script {
	for old, substitute := range map[string]string{
		"local time = call('TIME')\n":               "",
		"local now = time[1] * 1000000 + time[2]\n": "local now = tonumber(table.remove(ARGV))\n",
		expiry: "",
	} {
		require.True(t, strings.Contains(lua, old), old)
		lua = strings.ReplaceAll(lua, old, substitute)
	}
	return newScript(lua)
}

// timedLimiter makes a limiter whose clock is c.
func timedLimiter(t testing.TB, client goredis.UniversalClient, p ratelimit.Policy, c *clock) *Limiter {
	p.Name = redistest.Prefix(t) + p.Name
	l := NewLimiter(client, p)
	script := func(lua string) *script {
		return timed(t, bucketLua+lua, ", 'PX', format('%.0f', ceil(micros / 1000))")
	}
	l.one, l.many, l.joint = script(takeLua), script(consumeLua), script(jointLua)
	l.blocks = newFlights("limiter", client, script(blockLua), 0)
	l.now = func() time.Duration { return time.Duration(c.local.Load()) }
	l.time = func() []any { return []any{c.server.Load()} }
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
	l.flights = newFlights("cooldown", client, timed(t, cooldownLua, ", 'PX', format('%.0f', math.ceil(reset() / 1000))"), 4)
	l.now = func() time.Duration { return time.Duration(c.local.Load()) }
	l.time = func() []any { return []any{c.server.Load()} }
	return l
}

// An answer that was under way when a bucket was filled by hand is about what it held before.
func TestRecentDoesNotBelieveWhatWasOverruled(t *testing.T) {
	var r recent[string]
	r.put(1, "empty", time.Second, 2*time.Second)
	r.overrule(1, 3*time.Second)
	_, known := r.get(1, 3*time.Second)
	require.False(t, known)
	r.put(1, "empty", 2*time.Second, 4*time.Second)
	_, known = r.get(1, 4*time.Second)
	require.False(t, known, "it was asked for before")
	r.put(1, "empty", 4*time.Second, 5*time.Second)
	_, known = r.get(1, 5*time.Second)
	require.True(t, known)
}

// A caller alone makes the round trip itself, unless it might have to give up before its client
// does.
func TestACallerAloneChangesNoGoroutine(t *testing.T) {
	server := redistest.Any(t)
	for _, tt := range []struct {
		name     string
		timeout  time.Duration
		obedient bool
		alone    bool
	}{
		{"who never gives up", 0, false, true},
		{"whose client stops soon enough", flightTime / 20, true, true},
		{"whose client may stop too late", flightTime / 20, false, false},
		{"who may be cancelled long before its client stops", time.Minute, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := NewLimiter(server, ratelimit.PerHour(1000).Named(redistest.Prefix(t)))
			l.flights.obedient = tt.obedient
			carry, me := l.flights.carry, goroutine()
			var alone bool
			l.flights.carry = func(ctx context.Context, calls []*call) {
				alone = goroutine() == me
				carry(ctx, calls)
			}
			ctx := context.Background()
			if tt.timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tt.timeout)
				defer cancel()
			}
			d, err := l.Consume(ctx, ratelimit.Key{"ann"}, 1)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			require.Equal(t, tt.alone, alone)
			if alone {
				require.Empty(t, l.flights.begun, "it has landed")
			}
		})
	}
}

// goroutine returns what the stack of this one begins with.
func goroutine() string {
	stack := make([]byte, 64)
	stack = stack[:runtime.Stack(stack, false)]
	return string(stack[:bytes.IndexByte(stack, '[')])
}

// Who comes while a caller is alone under way is carried, and the caller does not wait for it.
func TestOthersAreCarriedAfterACallerAlone(t *testing.T) {
	l := NewLimiter(redistest.Any(t), ratelimit.PerHour(1000).Named(redistest.Prefix(t)))
	carry := l.flights.carry
	leave := make(chan struct{})
	l.flights.carry = func(ctx context.Context, calls []*call) {
		<-leave
		carry(ctx, calls)
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			d, err := l.Consume(context.Background(), ratelimit.Key{"ann"}, 1)
			assert.NoError(t, err)
			assert.True(t, d.Allowed)
		})
	}
	close(leave)
	wg.Wait()
	d, err := l.Consume(context.Background(), ratelimit.Key{"ann"}, 0)
	require.NoError(t, err)
	require.EqualValues(t, 900, d.Remaining)
	require.Eventually(t, func() bool {
		l.flights.mu.Lock()
		defer l.flights.mu.Unlock()
		return len(l.flights.begun) == 0 && len(l.flights.waiting) == 0
	}, time.Second, time.Millisecond)
}
