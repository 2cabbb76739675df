package redis

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// TestScripts_ConvertAsUnitsDo compares the conversion of buckets in the scripts with that of
// package limit, for random policies and numbers up to the largest.
func TestScripts_ConvertAsUnitsDo(t *testing.T) {
	t.Parallel()
	const compare = `
local replies = {}
for i = 1, #ARGV, 6 do
  local missing, per_micro, old_per_micro = tonumber(ARGV[i]), tonumber(ARGV[i + 1]), tonumber(ARGV[i + 3])
  local micros = math.ceil(missing / old_per_micro)
  local ahead = math.max(missing - ARGV[i + 4] * ARGV[i + 5], 0)
  local value = string.format('%.0f:%.0f:%.0f/%s.%s.%s', now + micros, micros * old_per_micro - missing, ahead, ARGV[i + 3], ARGV[i + 4], ARGV[i + 5])
  local converted, outdated = read('key', value, per_micro, 0, '/' .. ARGV[i + 1] .. '.' .. ARGV[i + 2] .. '.1')
  table.insert(replies, converted)
  table.insert(replies, outdated and 1 or 0)
end
return replies
`
	client := redistest.Shared(t)
	rng := rand.New(rand.NewPCG(7, 8))
	for range testscale.Tiers(5, 5, 50) {
		args, want := randomConversions(rng)
		got, err := client.Eval(t.Context(), bucketLua(compare), nil, args...).Slice()
		require.NoError(t, err)
		require.Len(t, got, len(want))
		for i := range want {
			require.Equal(t, want[i], got[i], "policies %v", args[i/2*6:i/2*6+6])
		}
	}
}

// randomConversions returns arguments of the script, six for each conversion, and its two
// replies for each.
func randomConversions(rng *rand.Rand) (args, want []any) {
	for range 200 {
		u, old := randomUnits(rng), randomUnits(rng)
		missing := rng.Int64N(min(2*old.Full(), 1<<uint(1+rng.IntN(51)))) + 1
		if rng.IntN(2) == 0 {
			missing = old.Full() - rng.Int64N(old.PerToken())
		}
		args = append(args, missing, u.PerMicro(), u.PerToken(), old.PerMicro(), old.PerToken(), old.Full()/old.PerToken())
		faster := int64(0)
		if u.RefillsFasterThan(old) {
			faster = 1
		}
		want = append(want, u.FromUnits(missing, old), faster)
	}
	return args, want
}

// randomUnits returns a policy of any size, and often one whose tokens have so many units that
// products of two policies exceed a double.
func randomUnits(rng *rand.Rand) adapter.Units {
	for {
		p := limit.Policy{
			Capacity: 1 + rng.Int64N(1<<uint(1+rng.IntN(40))),
			Refill:   1 + rng.Int64N(1<<uint(1+rng.IntN(14))),
			Per:      time.Duration(1+rng.Int64N(1<<uint(1+rng.IntN(50)))) * time.Microsecond,
		}
		if rng.IntN(2) == 0 {
			p.Capacity, p.Per = 1, p.Per%(1<<40)*time.Microsecond+1<<49*time.Microsecond
		}
		if p.Validate() == nil {
			return adapter.UnitsOf(p)
		}
	}
}

func TestLimiter_ValueNamesNumbersOfPolicy(t *testing.T) {
	t.Parallel()
	m := startMovedServer(t)
	m.server.Set(time.UnixMicro(1730000000000000))
	l := NewLimiter(m.client, limit.PerSecond(10).Named("numbers"))
	value := func() string { return m.client.Get(t.Context(), l.buckets.prefix+":user:ann").Val() }
	ann := limit.Key{"user", "ann"}

	_, err := limit.Consume(t.Context(), l, ann, 3)
	require.NoError(t, err)
	require.Equal(t, "1730000000300000/1.100000.10", value())
	require.LessOrEqual(t, len(value()), 44, "Redis stores it in one allocation")

	require.NoError(t, l.SetPolicy(limit.Policy{Name: l.Describe()[0].Name, Capacity: 10, Refill: 3, Per: 2 * time.Second}))
	_, err = limit.Consume(t.Context(), l, ann, 1)
	require.NoError(t, err)
	require.Equal(t, "1730000002666667:1/3.2000000.10", value())

	_, err = limit.Reserve(t.Context(), l, ann, 10, time.Hour)
	require.NoError(t, err)
	require.Equal(t, "1730000009333334:2:8000000/3.2000000.10", value())

	require.NoError(t, l.Block(t.Context(), ann, time.Minute))
	require.Equal(t, "!1730000060000000:1730000000000000", value())
}

func TestLimiter_SetPolicyNeedsTheSameName(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t)
	unnamed := NewLimiter(client, limit.PerHour(5))
	require.ErrorContains(t, unnamed.SetPolicy(limit.PerHour(6)), "give it a name")
	require.ErrorContains(t, unnamed.SetPolicy(limit.PerHour(6).Named("x")), "give it a name")
	named := NewLimiter(client, limit.PerHour(5).Named("x"))
	require.ErrorContains(t, named.SetPolicy(limit.PerHour(6).Named("y")), `named "x"`)
	require.ErrorContains(t, named.SetPolicy(limit.PerHour(0).Named("x")), "redis: ")
	assert.Equal(t, []limit.Description{{Name: "x", Limit: 5, Window: time.Hour, Refill: 1, Per: 12 * time.Minute}}, named.Describe())
	require.NoError(t, named.SetPolicy(limit.PerMinute(6).Named("x")))
	assert.Equal(t, []limit.Description{{Name: "x", Limit: 6, Window: time.Minute, Refill: 1, Per: 10 * time.Second}}, named.Describe())
}
