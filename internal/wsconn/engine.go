package wsconn

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/netpoll"
	"github.com/penstock-go/penstock/internal/timerqueue"
)

// An Engine is what connections share: event loops, a queue of timers, and goroutines that
// write what other goroutines have queued. It holds no goroutine while it has no connections. It
// is safe for concurrent use.
type Engine struct {
	start    time.Time // of the times in connections
	poller   *netpoll.Poller
	timers   timerqueue.Queue[*connTimer] // Conn.mu is acquired before its lock
	flushers []flusher                    // by the number of an event loop
}

// NewEngine returns an engine with an event loop per processor.
func NewEngine() *Engine {
	e := &Engine{start: time.Now(), poller: netpoll.NewPoller()}
	e.flushers = make([]flusher, e.poller.Loops())
	return e
}

// A flusher writes the queues of connections on one goroutine, which lives only while
// there are some. So a message to many connections wakes one goroutine, and messages that are queued
// before it has run leave in one system call per connection.
type flusher struct {
	mu      sync.Mutex
	conns   []queuedConn // whose writer is writerQueued, or has been taken by another goroutine
	spare   []queuedConn // memory for conns
	running bool

	_ [56]byte // keeps the flushers on different cache lines
}

// A queuedConn is a connection, which sorting need not read.
type queuedConn struct {
	*Conn

	order int32 // of the socket
}

// maxSpareConns is the largest capacity that a flusher keeps.
const maxSpareConns = 64 << 10

// add lets the flusher write the queue of c, whose writer the caller has set to writerQueued.
func (f *flusher) add(c *Conn) {
	f.mu.Lock()
	f.conns = append(f.conns, queuedConn{c, c.sock.raw.Order()})
	start := !f.running
	f.running = true
	f.mu.Unlock()
	if start {
		go f.run()
	}
}

func (f *flusher) run() { f.write(f.take(nil)) }

// write begins with conns. A Handler that calls runtime.Goexit ends the goroutine, and another one
// goes on.
func (f *flusher) write(conns []queuedConn) {
	next := 0 // the index of the first connection that has not been written
	executor.Do(func() {
		yielded := time.Now()
		for ; conns != nil; conns, next = f.take(conns), 0 {
			slices.SortFunc(conns, func(a, b queuedConn) int { return cmp.Compare(a.order, b.order) })
			for next < len(conns) {
				c := conns[next]
				conns[next] = queuedConn{}
				next++
				if c.writer.CompareAndSwap(writerQueued, writerRunning) {
					c.writeLoop()
				}
				if next%8 == 0 && time.Since(yielded) > flushInterval {
					runtime.Gosched()
					yielded = time.Now()
				}
			}
		}
	}, func() { go f.write(conns[next:]) })
}

// flushInterval bounds how long other goroutines wait for a flusher on the same processor.
const flushInterval = 100 * time.Microsecond

// take returns the connections that wait, or nil. done is what take returned before.
func (f *flusher) take(done []queuedConn) []queuedConn {
	f.mu.Lock()
	defer f.mu.Unlock()
	if done != nil && cap(done) <= maxSpareConns {
		f.spare = done[:0]
	}
	if len(f.conns) == 0 {
		f.running = false
		return nil
	}
	conns := f.conns
	f.conns, f.spare = f.spare, nil
	return conns
}
