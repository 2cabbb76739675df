package cluster

import (
	"encoding/binary"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// peers are the nodes from which this one has received a message.
type peers struct {
	start  time.Time
	mu     sync.RWMutex         // also held for reading to set peer.lastSeen
	byName map[string]*peer     // including this node
	left   map[string]time.Time // when the leave message of a node was received

	// confirmed is when the subscription to heartbeats was confirmed, zero while it is interrupted.
	confirmed time.Time

	// forgotten are failed nodes whose state was removed. A crashed node remains there, so they
	// are bounded.
	forgotten map[string]struct{}
}

const maxForgotten = 1024

// A peer is a node.
type peer struct {
	lastSeen atomic.Int64 // as a duration since start
	failed   bool         // NodeLeft was called; it may have been paused, and return
	beat     uint64       // number of its last heartbeat
	beatAt   time.Time
	returned time.Time // after it was forgotten; otherwise zero
}

const (
	heartbeatInterval = time.Second
	peerTimeout       = 4 * time.Second // without a message; the peer has then failed

	// forgetPeer is how long the state of a failed peer and of one that has left is kept, since
	// a failed one may only have been paused.
	forgetPeer = 10 * time.Minute
)

// markAlive records a message of a node. A message may arrive on another connection after the leave
// message of its sender, which then remains left.
func (ps *peers) markAlive(name string) {
	if ps.refresh(name) { // as nearly always
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if _, left := ps.left[name]; left {
		return
	}
	p := ps.byName[name]
	if p == nil {
		p = &peer{}
		ps.byName[name] = p
		if _, ok := ps.forgotten[name]; ok {
			delete(ps.forgotten, name)
			p.returned = time.Now()
		}
	}
	p.failed = false
	p.lastSeen.Store(int64(time.Since(ps.start)))
}

// refresh records a message of a peer that has not failed, and returns false if there is none.
func (ps *peers) refresh(name string) bool {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	p := ps.byName[name]
	if p == nil || p.failed {
		return false
	}
	p.lastSeen.Store(int64(time.Since(ps.start)))
	return true
}

// recordBeat records the number of a heartbeat and returns its payload.
func (ps *peers) recordBeat(m *nodeMessage) (payload []byte, ok bool) {
	number, n := binary.Uvarint(m.packet)
	if n <= 0 {
		return nil, false
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byName[m.from]
	if p == nil {
		return nil, false
	}
	p.beat, p.beatAt = max(p.beat, number), time.Now()
	return m.packet[n:], true
}

// beats returns the number of the last heartbeat of each node.
func (ps *peers) beats() map[string]uint64 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	beats := make(map[string]uint64, len(ps.byName))
	for name, p := range ps.byName {
		beats[name] = p.beat
	}
	return beats
}

// wasKnown reports whether what a node published before the given heartbeat should have arrived at
// a subscription that was confirmed at the given time. The heartbeat's time is estimated and may
// be late by the delay of the network.
func (ps *peers) wasKnown(name string, confirmed time.Time, beat uint64) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byName[name]
	if p == nil {
		return false
	}
	if p.returned.After(confirmed) {
		return true // its trackers were removed
	}
	if p.beatAt.IsZero() || beat > p.beat {
		return false
	}
	sent := p.beatAt.Add(-time.Duration(p.beat-beat) * heartbeatInterval)
	return sent.Sub(confirmed) > heartbeatInterval
}

// leave records a leave message, and reports whether NodeLeft must be called.
func (ps *peers) leave(name string) (notify bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byName[name]
	delete(ps.byName, name)
	ps.left[name] = time.Now()
	return p != nil && !p.failed
}

// expire returns the peers that have failed, and those whose state is no longer needed. A peer has
// failed if its last message is older than peerTimeout, compared with this node's own last
// heartbeat: without connection, this node expires no peer.
func (ps *peers) expire(self string) (failed, forgotten []string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	maps.DeleteFunc(ps.left, func(_ string, at time.Time) bool { return time.Since(at) > forgetPeer })
	own := ps.byName[self]
	if own == nil {
		return nil, nil
	}
	for name, p := range ps.byName {
		switch silence := time.Duration(own.lastSeen.Load() - p.lastSeen.Load()); {
		case silence > forgetPeer && p.failed:
			delete(ps.byName, name)
			forgotten = append(forgotten, name)
			for old := range ps.forgotten {
				if len(ps.forgotten) < maxForgotten {
					break
				}
				delete(ps.forgotten, old)
			}
			ps.forgotten[name] = struct{}{}
		case silence > peerTimeout && !p.failed:
			p.failed = true
			failed = append(failed, name)
		}
	}
	return failed, forgotten
}

// others returns the peers that have not failed. All are known if a heartbeat of each has arrived since
// the subscription was confirmed, and if those of this node still arrive.
func (ps *peers) others(self string) (names []string, all bool) {
	ps.mu.RLock()
	defer ps.mu.RUnlock()
	for name, p := range ps.byName {
		if name != self && !p.failed {
			names = append(names, name)
		}
	}
	own := ps.byName[self]
	all = own != nil && !ps.confirmed.IsZero() && time.Since(ps.confirmed) > lossDelay &&
		time.Since(ps.start)-time.Duration(own.lastSeen.Load()) < 2*heartbeatInterval
	return names, all
}

// interrupt records that heartbeats do not arrive.
func (ps *peers) interrupt() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.confirmed = time.Time{}
}

// confirm records that heartbeats arrive. It gives all peers time to be received again after an
// interruption of this node's connection: less than peerTimeout, so that the members of a peer that
// failed meanwhile leave within five seconds.
func (ps *peers) confirm() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.confirmed = time.Now()
	for _, p := range ps.byName {
		if !p.failed {
			p.lastSeen.Store(int64(time.Since(ps.start) - heartbeatInterval))
		}
	}
}
