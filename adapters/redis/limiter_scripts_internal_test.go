package redis

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// TestScripts_UsualBucketsEqualOthers compares the scripts, which treat usual buckets apart, with the one for one
// call without that. All run in one script on a store of their own, whose time stands still.
func TestScripts_UsualBucketsEqualOthers(t *testing.T) {
	t.Parallel()
	const usual = "if units >= 0 and ("
	require.Contains(t, limiterConsumeOneLua, usual)
	general := strings.Replace(limiterConsumeOneLua, usual, "if false and (", 1)
	script := function("general", lazyBucketLua(general)) + function("one", lazyBucketLua(limiterConsumeOneLua)) + function("many", lazyBucketLua(limiterConsumeManyLua)) + `
local function store(value)
  local values = { key = value ~= '' and value or nil }
  local function call(name, key, new)
    if name == 'TIME' then return { '1730000000', '5' }
    elseif name == 'GET' then return values[key] or false
    elseif name == 'MGET' then return { values[key] or false, values[key] or false, values[key] or false }
    else values[key] = name == 'SET' and new or nil end
  end
  return values, { call = call }
end
local replies = {}
for i = 1, #ARGV, 7 do
  local function args(...) return { ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ... } end
  for _, f in ipairs({ general, one }) do
    local values, redis = store(ARGV[i])
    local held = {}
    for n = 4, 6 do
      held[#held + 1] = string.format('%.0f', f(redis, { 'key' }, args(ARGV[i + n])))
    end
    table.insert(replies, table.concat(held, ' ') .. ' ' .. (values.key or 'none'))
  end
  local values, redis = store(ARGV[i])
  local held = many(redis, { 'key', 'key', 'key' }, args(ARGV[i + 4], ARGV[i + 5], ARGV[i + 6]))
  table.insert(replies, string.format('%.0f %.0f %.0f ', held[1], held[2], held[3]) .. (values.key or 'none'))
end
return replies
`
	client := redistest.Shared(t)
	rng := rand.New(rand.NewPCG(3, 4))
	for range testscale.Tiers(5, 5, 50) {
		var args []any
		for range 200 {
			args = append(args, randomCalls(rng)...)
		}
		replies, err := client.Eval(t.Context(), script, nil, args...).StringSlice()
		require.NoError(t, err)
		require.Len(t, replies, 600)
		for i := 0; i < len(replies); i += 3 {
			call := args[i/3*7 : i/3*7+7]
			assert.Equal(t, replies[i], replies[i+1], "one call after the other: %v", call)
			assert.Equal(t, replies[i], replies[i+2], "many calls: %v", call)
		}
	}
}

// function returns a Lua function that executes a script with other globals.
func function(name, script string) string {
	return "local function " + name + "(redis, KEYS, ARGV)\n" + script + "end\n"
}

// randomCalls returns a value of a bucket, the arguments about its policy, and the units of three calls.
func randomCalls(rng *rand.Rand) []any {
	const now = 1_730_000_000_000_005
	perMicro, capacity := 1+2*rng.Int64N(2), 1+rng.Int64N(10)
	perToken := 1000 * (1 + rng.Int64N(1000))
	full := capacity * perToken
	suffix := fmt.Sprintf("/%d.%d.%d", perMicro, perToken, capacity)
	fullAt := now + rng.Int64N(3*full/perMicro) - full/perMicro // also of a clock that has gone backwards
	value := fmt.Sprint(fullAt)
	switch rng.IntN(8) {
	case 0:
		value, suffix = "", "/1.7.9"
	case 1:
		value += fmt.Sprintf(":%d%s", rng.Int64N(perMicro), suffix)
	case 2:
		value += fmt.Sprintf(":%d:%d%s", rng.Int64N(perMicro), rng.Int64N(full), suffix)
	case 3:
		value += "/1.7000.9"
	case 4:
		value = fmt.Sprintf("!%d:%d", fullAt, now-rng.Int64N(100))
	default:
		value += suffix
	}
	args := []any{value, perMicro, full, suffix}
	for range 3 {
		units := []int64{0, full + 1, perToken * rng.Int64N(capacity+1), perToken, -perToken, rng.Int64N(full + 1)}
		args = append(args, units[rng.IntN(len(units))])
	}
	return args
}
