//go:build unix && !race

package abuse_test

import (
	"flag"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

var update = flag.String("abuse.update", "", "the file whose table of costs is replaced, in the full tier")

// A cost is what the server pays for each byte of an attacker.
type cost struct {
	kept, redisKept float64 // bytes
	sent            float64 // bytes, to the attacker
	cpu             float64 // a multiple of that of an event without payload
	commands        float64 // of Redis
	traffic         float64 // bytes, to Redis and from Redis
}

// TestCosts_StayBelowTheirCeilings lets one client do the same again and again, and divides what that
// costs by what the client has sent.
func TestCosts_StayBelowTheirCeilings(t *testing.T) {
	client := redistest.Start(t).Client(t)
	rows := testscale.Sample(rows, 12)
	costs := make([]cost, len(rows))
	event := measure(t, client, row{name: "event", prepare: repeat(5000, `{"type":"EVENT"}`)}, shortPause).cpu
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			costs[i] = lowest(t, client, row, event)
			actual, ceiling := costs[i].values(), row.ceiling.values()
			for column := range actual {
				assert.LessOrEqual(t, actual[column], ceiling[column], "%s for each byte", columns[column])
			}
		})
	}
	if *update != "" && !t.Failed() {
		require.NoError(t, updateTable(*update, table(rows, costs)))
	}
	t.Log("\n" + table(rows, costs))
}

// lowest measures a row until no value exceeds its ceiling, up to five times, and returns the lowest
// values: what else the process and the machine do only adds to them. event is the CPU time of an event.
func lowest(t *testing.T, client *goredis.Client, row row, event float64) (c cost) {
	pause := shortPause
	for attempt := range 5 {
		again := measure(t, client, row, pause)
		pause = longPause
		again.cpu /= event
		if attempt == 0 {
			c = again
		}
		c = c.lower(again)
		if c.lower(row.ceiling) == c {
			break
		}
	}
	return c
}

// lower returns the lower one of each value.
func (c cost) lower(d cost) cost {
	return cost{
		kept: min(c.kept, d.kept), redisKept: min(c.redisKept, d.redisKept), sent: min(c.sent, d.sent),
		cpu: min(c.cpu, d.cpu), commands: min(c.commands, d.commands), traffic: min(c.traffic, d.traffic),
	}
}

// Pauses between samples of the memory. On a machine that is busy, many goroutines run at once, and those
// of a pool end only after it has not needed them for two seconds.
const (
	shortPause = 5 * time.Millisecond
	longPause  = 3 * time.Second
)

// measure returns what a row costs. The CPU time is in nanoseconds.
func measure(t *testing.T, client *goredis.Client, row row, pause time.Duration) cost {
	require.NoError(t, client.FlushAll(t.Context()).Err())
	r, addr := newServer(t, client)
	s := &scene{attacker: &attacker{t: t, addr: addr}, router: r}
	attack := row.prepare(s)
	s.sent, s.received = 0, 0
	used := newMeter(t, client, pause).used(attack)
	bytes := float64(s.sent)
	return cost{
		kept: used.kept / bytes, redisKept: used.redisKept / bytes, sent: float64(s.received) / bytes,
		cpu: float64(used.cpu) / bytes, commands: used.commands / bytes, traffic: used.traffic / bytes,
	}
}
