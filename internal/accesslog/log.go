// Package accesslog delivers to every node what ends the access of users, once and in order, also after the
// node was cut off. It is one history for all users, which every node follows from its start: a node
// that followed the log of a user only while the user is connected would not learn of what came while
// the first connection was being accepted, or after that while the store could not be read.
package accesslog

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock-go/penstock/internal/executor"
)

// attachTimeout bounds how long AwaitNow waits.
const attachTimeout = 2 * time.Second

// A Log is that of one node. A sequencer hands entries over to it.
type Log struct {
	handler Handler
	node    string // a random name of this node

	// handed numbers what concerns connections that were authenticated before: each entry, each
	// loss, and the moment from which entries are handed over. It begins at 0. It is stored only
	// under the sequencer's lock.
	handed   atomic.Uint32
	attached chan struct{}      // closed at that moment
	queue    executor.FuncQueue // calls the handler, in order
}

// A Handler contains the functions that a Log calls, one at a time and without locks.
type Handler struct {
	// Entry handles an entry, which concerns those who were authenticated before its number. own is
	// true on the node that has added it.
	Entry func(number uint32, own bool, packet []byte)

	// Unknown is called if it is unknown what concerns those who were authenticated before a number.
	Unknown func(number uint32)
}

// New returns a Log.
func New(h Handler) *Log {
	return &Log{handler: h, node: rand.Text(), attached: make(chan struct{})}
}

// Attached is called once, when entries are handed over from now on. What came before is unknown, for
// those who have not waited for this. It is called under the sequencer's lock, as HandOver and Lose.
func (l *Log) Attached() {
	l.Lose()
	close(l.attached)
}

// Lose is called if it is unknown which entries there were.
func (l *Log) Lose() {
	number := l.handed.Add(1)
	l.queue.Add(func() { l.handler.Unknown(number) })
}

// HandOver handles an entry, in order. The caller keeps the bytes.
func (l *Log) HandOver(entry []byte) {
	number := l.handed.Add(1)
	length, prefix := binary.Uvarint(entry)
	if prefix <= 0 || length > uint64(len(entry)-prefix) {
		return
	}
	node, packet := string(entry[prefix:prefix+int(length)]), slices.Clone(entry[prefix+int(length):])
	l.queue.Add(func() { l.handler.Entry(number, node == l.node, packet) })
}

// Entry returns the entry for a packet of this node.
func (l *Log) Entry(packet []byte) []byte {
	entry := append(binary.AppendUvarint(nil, uint64(len(l.node))), l.node...)
	return append(entry, packet...)
}

// Now returns the number of the newest entry: those with a higher one concern users who are authenticated
// before the call.
func (l *Log) Now() uint32 { return l.handed.Load() }

// AwaitNow is Now when entries are handed over, for a node that has just started. While the store is
// away, it returns 0 after two seconds.
func (l *Log) AwaitNow(ctx context.Context) uint32 {
	if n := l.Now(); n > 0 {
		return n
	}
	timeout := time.NewTimer(attachTimeout)
	defer timeout.Stop()
	select {
	case <-l.attached:
	case <-timeout.C:
	case <-ctx.Done():
	}
	return l.Now()
}

// Precedes reports whether a user for whom Now has returned since was authenticated before a number.
// Numbers may overflow.
func Precedes(since, number uint32) bool { return int32(number-since) > 0 }
