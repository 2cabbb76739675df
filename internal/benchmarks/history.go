package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/centrifugal/centrifuge"
	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
)

// A historyPeer creates publishers with a history of 100 publications per topic on a Redis server.
// publish waits until the publication is stored.
type historyPeer struct {
	name string
	make func(addr string) (publish func(topic, key string, packet []byte) error, stop func())
}

var historyPeers = []historyPeer{
	{"penstock", func(addr string) (func(string, string, []byte) error, func()) {
		client := goredisClient(addr)
		s := redis.NewBroker(client).ConnectHistory(broker.Callbacks{
			Receive:         func(string, string, []byte) {},
			Subscribed:      func(string) {},
			MessagesLost:    func(string, int) {},
			PresenceChanged: func(string, broker.Member, bool) {},
			NodeLeft:        func(string) {},
		}, broker.HistoryCallbacks{Published: func(string, broker.Publication) {}, Following: func(string) {}})
		publish := func(topic, key string, packet []byte) error {
			_, err := s.Append(context.Background(), broker.Append{
				Topic: topic, Packet: packet, IdempotencyKey: key,
				Retention: broker.Retention{Messages: 100, Age: time.Hour},
			})
			return err
		}
		return publish, func() { check(s.Close(context.Background())); check(client.Close()) }
	}},
	{"centrifuge", func(addr string) (func(string, string, []byte) error, func()) {
		node, err := centrifuge.New(centrifuge.Config{})
		check(err)
		shard, err := centrifuge.NewRedisShard(node, centrifuge.RedisShardConfig{Address: addr})
		check(err)
		b, err := centrifuge.NewRedisBroker(node, centrifuge.RedisBrokerConfig{Shards: []*centrifuge.RedisShard{shard}})
		check(err)
		publish := func(topic, key string, packet []byte) error {
			_, _, err := b.Publish(topic, packet, centrifuge.PublishOptions{HistorySize: 100, HistoryTTL: time.Hour, IdempotencyKey: key})
			return err
		}
		return publish, func() { check(b.Close(context.Background())); shard.Close() }
	}},
}

const historyPublishers = 64

var historyCases = []struct {
	name   string
	topics int
	keyed  bool // each publication has an idempotency key of its own
}{
	{"1 topic", 1, false},
	{"1,000 topics", 1000, false},
	{"1 topic, keys", 1, true},
	{"1,000 topics, keys", 1000, true},
}

// histories compares brokers that keep a history on a Redis server.
func histories(cfg config) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Println("\nhistory: skipped, redis-server is not installed")
		return
	}
	addr, stop := startRedis()
	defer stop()
	var columns []string
	for _, c := range historyCases {
		columns = append(columns, c.name)
	}
	perCore := newTable("histories on Redis, 64 publishers, 200 bytes: thousand publications per second of CPU of the Redis server", "%.1f", columns...).named("history")
	rate := newTable("thousand publications per second", "%.1f", columns...)
	batches := newTable("publications per script call", "%.1f", columns...)
	for range cfg.passes {
		for _, c := range historyCases {
			for _, peer := range historyPeers {
				r := publishHistory(addr, peer, c.topics, c.keyed)
				perCore.add(peer.name, c.name, r.perCPUSecond/1000)
				rate.add(peer.name, c.name, r.perSecond/1000)
				batches.add(peer.name, c.name, r.perCall)
			}
		}
	}
	perCore.print()
	perCore.printRatios()
	rate.print()
	rate.printRatios()
	batches.print()
}

type historyResult struct{ perSecond, perCPUSecond, perCall float64 }

// publishHistory publishes while one connection subscribes to all topics.
func publishHistory(addr string, peer historyPeer, topics int, keyed bool) historyResult {
	client := goredisClient(addr)
	defer func() { _ = client.Close() }()
	check(client.FlushAll(context.Background()).Err())
	defer subscribeAll(addr)()
	publish, stop := peer.make(addr)
	defer stop()
	names := make([]string, topics)
	packet := []byte(rand.Text() + rand.Text() + rand.Text() + rand.Text() + rand.Text() + rand.Text() + rand.Text() + rand.Text())[:200]
	for i := range names {
		names[i] = "topic-" + strconv.Itoa(i)
		check(publish(names[i], "", packet))
	}
	var done atomic.Bool
	var published atomic.Int64
	var wg sync.WaitGroup
	calls, cpu, started := scriptCalls(client), redisCPU(client), time.Now()
	for n := range historyPublishers {
		wg.Go(func() {
			i, count := n*7919, 0
			for ; !done.Load(); count++ {
				i = (i*1103515245 + 12345) & 0x7fffffff
				key := ""
				if keyed {
					key = strconv.Itoa(n) + "-" + strconv.Itoa(count)
				}
				check(publish(names[(i>>8)%topics], key, packet))
			}
			published.Add(int64(count))
		})
	}
	time.Sleep(measured)
	done.Store(true)
	wg.Wait()
	elapsed := time.Since(started)
	n := float64(published.Load())
	return historyResult{
		perSecond:    n / elapsed.Seconds(),
		perCPUSecond: n / (redisCPU(client) - cpu),
		perCall:      n / (scriptCalls(client) - calls),
	}
}

func scriptCalls(client *goredis.Client) float64 {
	info, err := client.InfoMap(context.Background(), "commandstats").Result()
	check(err)
	var calls float64
	if stats, ok := info["Commandstats"]["cmdstat_evalsha"]; ok {
		_, err = fmt.Sscanf(stats, "calls=%g,", &calls)
		check(err)
	}
	return calls
}

// subscribeAll receives everything that is published, as another node would, until stop is called.
func subscribeAll(addr string) (stop func()) {
	conn, err := net.Dial("tcp", addr)
	check(err)
	_, err = io.WriteString(conn, "PSUBSCRIBE *\r\n")
	check(err)
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	return func() { _ = conn.Close() }
}
