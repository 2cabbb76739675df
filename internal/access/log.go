// Package access ends the access of users, on all nodes: the topics that they must not receive any more, and their
// connections. A [Node] does that on one node.
//
// A log delivers what ends access to every node, once and in order, also after the node was cut off. It is one history
// for all users, which every node follows from its start: a node that followed the log of a user only while the user is
// connected would not learn of what came while the first connection was being accepted, or after that while the store could
// not be read. Without a log, nodes notify each other with packets, which may be lost.
//
// The package has no lock of its own; functions of a [Host] are called without locks. A goroutine for each user who is
// disconnected waits for the messages that were sent before.
package access

import (
	"context"
	"crypto/rand"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/wire"
)

// attachTimeout bounds how long AwaitNow waits.
const attachTimeout = 2 * time.Second

// A log is that of one node.
type log struct {
	follows *sequencer.Sequencer
	node    string // a random name of this node

	// handed numbers what concerns connections that were authenticated before: each entry, each
	// loss, and the moment from which entries are handed over. It begins at 0. It is stored only
	// under the sequencer's lock.
	handed atomic.Uint32
	queue  executor.FuncQueue // calls apply and closeUnknown, in order and without locks
}

// Follow opens the log. It may call the Host at once. What came before is unknown, for those who have not waited for
// AwaitNow.
func (n *Node) Follow() {
	n.log = &log{node: rand.Text()}
	n.log.follows = n.Topics.Follow(logTopic, logRetention, sequencer.Sink{Deliver: n.handOver, Lost: n.lose})
	n.log.follows.WhenAttached(func() bool { return true }, func(broker.Position) { n.forget() })
}

// handOver handles an entry, in order.
func (n *Node) handOver(p broker.Publication) {
	number := n.log.handed.Add(1)
	node, packet, ok := wire.CutString(p.Packet)
	if !ok {
		return
	}
	own, packet := node == n.log.node, slices.Clone(packet)
	n.log.queue.Add(func() { n.apply(number, own, packet) })
}

// lose handles the loss of entries. After a failover of the store, entries are lost only if it has
// acknowledged them just before, and this node was cut off at that moment, so that alone leaves
// nothing unknown.
func (n *Node) lose(l sequencer.Loss) {
	n.Lost(l.Messages())
	if l.Epoch == "" {
		n.forget()
	}
}

// forget handles that it is unknown which entries there were.
func (n *Node) forget() {
	number := n.log.handed.Add(1)
	n.log.queue.Add(func() { n.closeUnknown(number) })
}

// Now returns what an identity that is authenticated after the call has as [Conn.Since]: entries with a higher number
// concern it.
func (n *Node) Now() uint32 {
	if n.log == nil {
		return n.latest.Load()
	}
	return n.log.handed.Load()
}

// AwaitNow is Now for handshakes. It waits until entries are handed over, on a node that has just started. While the store
// is away, it returns 0 after two seconds.
func (n *Node) AwaitNow(ctx context.Context) uint32 {
	if n.log != nil && n.Now() == 0 {
		ctx, cancel := context.WithTimeout(ctx, attachTimeout)
		defer cancel()
		_ = n.log.follows.AwaitAttached(ctx)
	}
	return n.Now()
}

// Close ends the log, if there is one.
func (n *Node) Close() {
	if n.log != nil {
		n.log.follows.Close()
	}
}

// Precedes reports whether a user for whom Now has returned since was authenticated before a number.
// Numbers may overflow.
func Precedes(since, number uint32) bool { return int32(number-since) > 0 }
