//go:build unix && !race

package abuse_test

import (
	"context"
	"runtime"
	"runtime/metrics"
	"strconv"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A snapshot is what has been used up to a moment, or between two.
type snapshot struct {
	kept      float64 // bytes of this process: objects on the heap, and stacks
	redisKept float64 // bytes
	cpu       time.Duration
	commands  float64 // of Redis, including those of scripts
	traffic   float64 // bytes to Redis and from Redis
}

// A meter reads snapshots.
type meter struct {
	t        *testing.T
	redis    *goredis.Client
	patience int      // how many samples in a row must show no less memory
	own      snapshot // what reading a snapshot adds to the next one
}

// newMeter returns a meter for a server that only this test uses.
func newMeter(t *testing.T, client *goredis.Client, patience int) *meter {
	m := &meter{t: t, redis: client, patience: patience}
	first, second := m.work(), m.work()
	m.own = snapshot{commands: second.commands - first.commands, traffic: second.traffic - first.traffic}
	return m
}

// work returns what has been done.
func (m *meter) work() (s snapshot) {
	var usage syscall.Rusage
	require.NoError(m.t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	s.cpu = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	info, err := m.redis.InfoMap(context.Background(), "stats").Result()
	require.NoError(m.t, err)
	number := func(name string) float64 {
		value, err := strconv.ParseFloat(info["Stats"][name], 64)
		require.NoError(m.t, err, name)
		return value
	}
	s.commands = number("total_commands_processed")
	s.traffic = number("total_net_input_bytes") + number("total_net_output_bytes")
	return s
}

// memory returns what is kept, as soon as that does not become less: goroutines end, and Redis frees what
// expires, after the last answer.
func (m *meter) memory() (s snapshot) {
	s = m.memoryOnce()
	for same := 0; same < m.patience; same++ {
		time.Sleep(5 * time.Millisecond)
		next := m.memoryOnce()
		if next.kept < s.kept-1024 || next.redisKept < s.redisKept-1024 {
			s, same = next, -1
		}
	}
	return s
}

func (m *meter) memoryOnce() (s snapshot) {
	for range 3 { // pools keep what they hold for two cycles
		runtime.GC()
	}
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	s.kept = float64(samples[0].Value.Uint64() + samples[1].Value.Uint64())
	stats, err := m.redis.Do(context.Background(), "MEMORY", "STATS").Result()
	require.NoError(m.t, err)
	number := func(name string) float64 {
		n, ok := stats.(map[any]any)[name].(int64)
		require.True(m.t, ok, "MEMORY STATS has no number %s", name)
		return float64(n)
	}
	s.redisKept = number("total.allocated") - number("clients.normal") - number("lua.caches")
	return s
}

// used returns what run uses, without what reading it uses.
func (m *meter) used(run func()) snapshot {
	kept := m.memory()
	before := m.work()
	run()
	after := m.work()
	keptAfter := m.memory()
	return snapshot{
		kept:      keptAfter.kept - kept.kept,
		redisKept: keptAfter.redisKept - kept.redisKept,
		cpu:       after.cpu - before.cpu,
		commands:  after.commands - before.commands - m.own.commands,
		traffic:   after.traffic - before.traffic - m.own.traffic,
	}
}
