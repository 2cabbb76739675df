package main

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// A blip: how long the nodes have no Redis server, and how many publications of each room they miss.
const (
	blipTime   = 2 * time.Second
	blipMissed = 5
	blipNodes  = 2
)

var blipPeers = map[string]struct {
	server   string // the variant
	protocol stormProtocol
}{
	"penstock":   {"storm", penstockProtocol(false)},
	"centrifuge": {"storm centrifuge", centrifugeProtocol()},
}

// blips measures how clients, whose connections stay open, receive what their nodes have missed.
func blips(cfg config, peers []string) {
	const last, commands, nodeCPU, onRedis = "until the last, ms", "commands to Redis", "CPU of the nodes, µs", "CPU of Redis, µs"
	title := fmt.Sprintf("%d clients of %d nodes recover after %v without Redis; all but the time per client", cfg.conns, blipNodes, blipTime)
	results := newTable(title, "%.2f", last, commands, nodeCPU, onRedis).named("blip")
	for range cfg.passes {
		for _, name := range peers {
			r := measureBlip(name, cfg.conns)
			n := float64(cfg.conns)
			results.add(name, last, r.last.Seconds()*1e3)
			results.add(name, commands, r.commands/n)
			results.add(name, nodeCPU, r.nodes*1e6/n)
			results.add(name, onRedis, r.redis*1e6/n)
		}
	}
	results.print()
	results.printRatios()
}

// A recovery is what the recovery of all clients takes: time, and CPU seconds.
type recovery struct {
	last                   time.Duration
	commands, nodes, redis float64
}

func measureBlip(name string, conns int) (r recovery) {
	addr, stop := startRedis()
	defer stop()
	redis := goredisClient(addr)
	defer func() { _ = redis.Close() }()
	peer, link := blipPeers[name], newLink(addr)
	defer link.close()
	roomCount := stormRooms + "=" + strconv.Itoa((conns+roomMembers-1)/roomMembers)
	publisher := start(variant(peer.server), setup{env: []string{redisAddr + "=" + addr, roomCount}})
	defer publisher.stop()
	s := &storm{}
	var nodes []*process
	for range blipNodes {
		p := start(variant(peer.server), setup{env: []string{redisAddr + "=" + link.addr(), roomCount}})
		defer p.stop()
		nodes = append(nodes, p)
	}
	for i := range conns {
		s.clients = append(s.clients, &stormClient{topic: "room/" + strconv.Itoa(i/roomMembers), to: nodes[i%blipNodes]})
	}
	s.each(func(c *stormClient) { check(c.open(c.to, peer.protocol)); check(peer.protocol.subscribe(c)) })
	defer s.each(func(c *stormClient) { c.close() })
	publisher.command("publish 1") // so that the history exists
	s.await(peer.protocol, 1)

	link.cut()
	publisher.command(fmt.Sprint("publish ", blipMissed))
	time.Sleep(blipTime)
	cpu := func() (seconds float64) {
		for _, p := range nodes {
			seconds += p.command("stats").CPU.Seconds()
		}
		return seconds
	}
	before, used, commands, started := cpu(), redisCPU(redis), redisInfo(redis, "stats", "total_commands_processed"), time.Now()
	link.restore()
	stopPublishing := every(time.Second, func() { publisher.command("publish 1") }) // a gap shows a client what it has missed
	s.await(peer.protocol, 1+blipMissed)
	r.last = time.Since(started)
	stopPublishing()
	r.nodes, r.redis = cpu()-before, redisCPU(redis)-used
	r.commands = redisInfo(redis, "stats", "total_commands_processed") - commands
	return r
}

// await waits until all clients have received everything up to offset.
func (s *storm) await(protocol stormProtocol, offset int) {
	var wg sync.WaitGroup
	for _, c := range s.clients {
		wg.Go(func() {
			for c.offset < offset {
				check(protocol.next(c))
			}
		})
	}
	wg.Wait()
}

// every calls f now and then at intervals, until stop is called.
func every(interval time.Duration, f func()) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			f()
			select {
			case <-end:
				return
			case <-time.After(interval):
			}
		}
	}()
	return func() { close(end); <-ended }
}

// A link is a network between the nodes and a Redis server.
type link struct {
	listener net.Listener
	target   string
	mu       sync.Mutex
	down     bool
	conns    []net.Conn
}

func newLink(target string) *link {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	l := &link{listener: listener, target: target}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.forward(conn)
		}
	}()
	return l
}

func (l *link) addr() string { return l.listener.Addr().String() }

func (l *link) forward(from net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to, err := net.Dial("tcp", l.target)
	if l.down || err != nil {
		_ = from.Close()
		return
	}
	l.conns = append(l.conns, from, to)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
		}()
	}
}

// cut ends all connections and refuses others until restore is called.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = true
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
}

func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = false
}

func (l *link) close() {
	_ = l.listener.Close()
	l.cut()
}
