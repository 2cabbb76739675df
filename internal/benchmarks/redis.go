package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislimiter"
	"github.com/throttled/throttled/v2"
	throttledstore "github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	ululestore "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/internal/freeport"
	"github.com/penstock-go/penstock/limit"
)

// A redisPeer creates limiters that either admit every call of a run, or only the first call per key.
type redisPeer struct {
	name string
	make func(addr string, admit bool) func(key string) (bool, error)
}

func goredisClient(addr string) *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: addr, PoolSize: 128})
}

var redisPeers = []redisPeer{
	{"penstock", func(addr string, admit bool) func(string) (bool, error) {
		p := limit.PerHour(1)
		if admit {
			p = limit.PerMinute(1).Burst(plenty)
		}
		l := redis.NewLimiter(goredisClient(addr), p)
		return func(key string) (bool, error) {
			d, err := limit.Consume(context.Background(), l, limit.Key{key}, 1)
			return d.Allowed, err
		}
	}},
	{"redis_rate", func(addr string, admit bool) func(string) (bool, error) {
		limit := redis_rate.Limit{Rate: 1, Burst: 1, Period: time.Hour}
		if admit {
			limit = redis_rate.Limit{Rate: 1, Burst: plenty, Period: time.Minute}
		}
		l := redis_rate.NewLimiter(goredisClient(addr))
		return func(key string) (bool, error) {
			r, err := l.Allow(context.Background(), key, limit)
			return err == nil && r.Allowed > 0, err
		}
	}},
	{"throttled", func(addr string, admit bool) func(string) (bool, error) {
		quota := throttled.RateQuota{MaxRate: throttled.PerHour(1)}
		if admit {
			quota = throttled.RateQuota{MaxRate: throttled.PerMin(1), MaxBurst: plenty}
		}
		store, err := throttledstore.NewCtx(goredisClient(addr), "throttled:")
		check(err)
		l, err := throttled.NewGCRARateLimiterCtx(store, quota)
		check(err)
		return func(key string) (bool, error) {
			// It gives up after ten attempts if two callers use the same key.
			for {
				if limited, _, err := l.RateLimitCtx(context.Background(), key, 1); err == nil {
					return !limited, nil
				}
			}
		}
	}},
	{"rueidislimiter", func(addr string, admit bool) func(string) (bool, error) {
		limit := 1
		if admit {
			limit = plenty
		}
		l, err := rueidislimiter.NewRateLimiter(rueidislimiter.RateLimiterOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true},
			Limit:        limit, Window: time.Hour,
		})
		check(err)
		return func(key string) (bool, error) {
			r, err := l.Allow(context.Background(), key)
			return r.Allowed, err
		}
	}},
	{"ulule", func(addr string, admit bool) func(string) (bool, error) {
		r := ulule.Rate{Period: time.Hour, Limit: 1}
		if admit {
			r.Limit = plenty
		}
		store, err := ululestore.NewStore(goredisClient(addr))
		check(err)
		l := ulule.New(store, r)
		return func(key string) (bool, error) {
			c, err := l.Get(context.Background(), key)
			return err == nil && !c.Reached, err
		}
	}},
}

var redisCases = []struct {
	name    string
	callers int
	keys    int
	admit   bool
}{
	{"1 caller", 1, 1000, true},
	{"16 callers", 16, 1000, true},
	{"128 callers", 128, 1000, true},
	{"128 rejected", 128, 1, false},
}

func redisLimiters(cfg config) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Println("\nredis: skipped, redis-server is not installed")
		return
	}
	addr, stop := startRedis()
	defer stop()
	var columns []string
	for _, c := range redisCases {
		columns = append(columns, c.name)
	}
	rate := newTable("limiters on Redis: thousand decisions per second", "%.1f", columns...).named("redis")
	p50 := newTable("median latency, µs", "%.0f", columns...)
	p99 := newTable("99th percentile latency, µs", "%.0f", columns...)
	cpu := newTable("CPU of the Redis server per decision, µs", "%.2f", columns...)
	own := newTable("CPU of the caller per decision, µs", "%.2f", columns...)
	allocs := newTable("allocations per decision", "%.1f", columns...)
	traffic := newTable("bytes to and from the Redis server per decision", "%.0f", columns...)
	size := newTable("memory of the Redis server, bytes per key", "%.0f", "100,000 keys").named("redis keys")
	for range cfg.passes {
		for _, peer := range redisPeers {
			for _, c := range redisCases {
				r := decide(addr, peer.make(addr, c.admit), c.callers, c.keys)
				rate.add(peer.name, c.name, r.perSecond/1000)
				p50.add(peer.name, c.name, r.p50Micros)
				p99.add(peer.name, c.name, r.p99Micros)
				cpu.add(peer.name, c.name, r.cpuMicros)
				own.add(peer.name, c.name, r.ownMicros)
				allocs.add(peer.name, c.name, r.allocs)
				traffic.add(peer.name, c.name, r.bytes)
			}
			size.add(peer.name, "100,000 keys", redisBytesPerKey(addr, peer.make(addr, true)))
		}
	}
	rate.print()
	rate.printRatios()
	p50.print()
	p99.print()
	cpu.print()
	cpu.printRatios()
	own.print()
	allocs.print()
	traffic.print()
	size.print()
}

type redisResult struct{ perSecond, p50Micros, p99Micros, cpuMicros, ownMicros, allocs, bytes float64 }

func decide(addr string, allow func(string) (bool, error), callers, keys int) redisResult {
	client := goredisClient(addr)
	defer func() { _ = client.Close() }()
	check(client.FlushAll(context.Background()).Err())
	names := make([]string, keys)
	for i := range names {
		names[i] = "user-" + strconv.Itoa(i)
	}
	call := func(key string) {
		_, err := allow(key)
		check(err)
	}
	for _, key := range names {
		call(key)
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	times := make([][]time.Duration, callers)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	bytesBefore, ownBefore := redisBytes(client), ownCPU()
	cpuBefore, started := redisCPU(client), time.Now()
	for n := range callers {
		wg.Go(func() {
			i := n * 7919
			for !stop.Load() {
				i = (i*1103515245 + 12345) & 0x7fffffff
				start := time.Now()
				call(names[i%keys])
				times[n] = append(times[n], time.Since(start))
			}
		})
	}
	time.Sleep(measured)
	stop.Store(true)
	wg.Wait()
	elapsed, cpuAfter, ownAfter := time.Since(started), redisCPU(client), ownCPU()
	runtime.ReadMemStats(&after)
	all := slices.Concat(times...)
	slices.Sort(all)
	n := float64(len(all))
	return redisResult{
		perSecond: n / elapsed.Seconds(),
		p50Micros: float64(all[len(all)/2].Nanoseconds()) / 1000,
		p99Micros: float64(all[len(all)*99/100].Nanoseconds()) / 1000,
		cpuMicros: (cpuAfter - cpuBefore) * 1e6 / n,
		ownMicros: (ownAfter - ownBefore) * 1e6 / n,
		allocs:    float64(after.Mallocs-before.Mallocs) / n,
		bytes:     (redisBytes(client) - bytesBefore) / n,
	}
}

func redisBytesPerKey(addr string, allow func(string) (bool, error)) float64 {
	const keys = 100_000
	client := goredisClient(addr)
	defer func() { _ = client.Close() }()
	check(client.FlushAll(context.Background()).Err())
	before := redisInfo(client, "memory", "used_memory")
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := g; i < keys; i += 16 {
				_, err := allow("user-" + strconv.Itoa(i))
				check(err)
			}
		})
	}
	wg.Wait()
	return (redisInfo(client, "memory", "used_memory") - before) / keys
}

// redisBytes returns how many bytes the Redis server has received and sent.
func redisBytes(client *goredis.Client) float64 {
	return redisInfo(client, "stats", "total_net_input_bytes") + redisInfo(client, "stats", "total_net_output_bytes")
}

func redisCPU(client *goredis.Client) float64 {
	return redisInfo(client, "cpu", "used_cpu_sys") + redisInfo(client, "cpu", "used_cpu_user")
}

func redisInfo(client *goredis.Client, section, field string) float64 {
	info, err := client.Info(context.Background(), section).Result()
	check(err)
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			n, err := strconv.ParseFloat(value, 64)
			check(err)
			return n
		}
	}
	fatal(fmt.Errorf("INFO %s has no %s", section, field))
	return 0
}

// startRedis starts a redis-server, on the first core if the client is pinned to the second.
func startRedis() (addr string, stop func()) {
	port := strconv.Itoa(freeport.Pick())
	addr = net.JoinHostPort("127.0.0.1", port)
	args := []string{"redis-server", "--port", port, "--save", "", "--appendonly", "no"}
	if os.Getenv(pinned) != "" {
		args = append([]string{"taskset", "-c", "0"}, args...)
	}
	server := exec.Command(args[0], args[1:]...)
	check(server.Start())
	client := goredisClient(addr)
	defer func() { _ = client.Close() }()
	for deadline := time.Now().Add(5 * time.Second); client.Ping(context.Background()).Err() != nil; {
		if time.Now().After(deadline) {
			fatal(fmt.Errorf("redis-server does not answer at %s", addr))
		}
	}
	return addr, func() { _ = server.Process.Kill(); _ = server.Wait() }
}
