package main

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	golimiter "github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
)

// A limiterPeer creates limiters that either admit every call of a run, or only the first call per
// key.
type limiterPeer struct {
	name string
	make func(admit bool) (allow func(key string) bool)
}

// plenty is more tokens than a run needs. The refill is slow, so that no limiter saves work by
// removing keys that are full again.
const plenty = 30_000_000

var limiterPeers = []limiterPeer{
	{"penstock", func(admit bool) func(string) bool {
		p := limit.PerHour(1)
		if admit {
			p = limit.PerMinute(1).Burst(plenty)
		}
		l := memory.NewLimiter(p)
		return func(key string) bool {
			d, err := limit.Consume(context.Background(), l, limit.Key{key}, 1)
			return err == nil && d.Allowed
		}
	}},
	{"x/time/rate", func(admit bool) func(string) bool {
		limit, burst := rate.Every(time.Hour), 1
		if admit {
			limit, burst = rate.Every(time.Minute), plenty
		}
		var limiters sync.Map
		return func(key string) bool {
			l, ok := limiters.Load(key)
			if !ok {
				l, _ = limiters.LoadOrStore(key, rate.NewLimiter(limit, burst))
			}
			return l.(*rate.Limiter).Allow()
		}
	}},
	{"go-limiter", func(admit bool) func(string) bool {
		tokens := uint64(1)
		if admit {
			tokens = plenty
		}
		store, err := golimiter.New(&golimiter.Config{Tokens: tokens, Interval: time.Hour, SweepInterval: 24 * time.Hour, SweepMinTTL: 24 * time.Hour})
		check(err)
		return func(key string) bool {
			_, _, _, ok, err := store.Take(context.Background(), key)
			return err == nil && ok
		}
	}},
	{"throttled", func(admit bool) func(string) bool {
		quota := throttled.RateQuota{MaxRate: throttled.PerHour(1)}
		if admit {
			quota = throttled.RateQuota{MaxRate: throttled.PerMin(1), MaxBurst: plenty}
		}
		store, err := memstore.NewCtx(0)
		check(err)
		l, err := throttled.NewGCRARateLimiterCtx(store, quota)
		check(err)
		return func(key string) bool {
			// It gives up after ten attempts if two callers use the same key.
			for {
				if limited, _, err := l.RateLimitCtx(context.Background(), key, 1); err == nil {
					return !limited
				}
			}
		}
	}},
	{"ulule", func(admit bool) func(string) bool {
		r := ulule.Rate{Period: time.Hour, Limit: 1}
		if admit {
			r.Limit = plenty
		}
		l := ulule.New(ululememory.NewStore(), r)
		return func(key string) bool {
			c, err := l.Get(context.Background(), key)
			return err == nil && !c.Reached
		}
	}},
}

var limiterCases = []struct {
	name  string
	keys  int
	admit bool
}{
	{"hot key", 1, true},
	{"rejected", 1, false},
	{"10,000 keys", 10_000, true},
	{"1,000,000 keys", 1_000_000, true},
}

func limiters(cfg config) {
	keys := make([]string, 1_000_000)
	for i := range keys {
		keys[i] = "user-" + strconv.Itoa(i)
	}
	var columns []string
	for _, c := range limiterCases {
		columns = append(columns, c.name)
	}
	one := newTable("limiters in one process: ns per decision, 1 goroutine", "%.0f", columns...)
	two := newTable("2 goroutines", "%.0f", columns...)
	size := newTable("bytes per key", "%.0f", columns[len(columns)-1])
	for _, c := range limiterCases {
		allows := make([]func(string) bool, len(limiterPeers))
		for i, peer := range limiterPeers {
			before := heapBytes()
			allows[i] = peer.make(c.admit)
			for _, key := range keys[:c.keys] {
				allows[i](key)
			}
			size.add(peer.name, c.name, float64(heapBytes()-before)/float64(c.keys))
		}
		for range cfg.passes {
			for i, peer := range limiterPeers {
				one.add(peer.name, c.name, nanosPerCall(peer.name, allows[i], keys[:c.keys], 1, c.admit))
				two.add(peer.name, c.name, nanosPerCall(peer.name, allows[i], keys[:c.keys], 2, c.admit))
			}
		}
	}
	for _, t := range []*table{one, two, size} {
		t.print()
		t.printRatios()
	}
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// nanosPerCall returns the wall-clock time per call. With two goroutines, it is half as long if they do
// not block each other.
func nanosPerCall(name string, allow func(string) bool, keys []string, goroutines int, want bool) float64 {
	const calls = 300_000
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(goroutines))
	var wg sync.WaitGroup
	started := time.Now()
	for g := range goroutines {
		wg.Go(func() {
			i := g * 7919
			for range calls {
				i = (i*1103515245 + 12345) & 0x7fffffff
				if allow(keys[i%len(keys)]) != want {
					check(fmt.Errorf("%s made a wrong decision", name))
				}
			}
		})
	}
	wg.Wait()
	return float64(time.Since(started).Nanoseconds()) / float64(calls*goroutines)
}
