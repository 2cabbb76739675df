package cluster

import (
	"encoding/binary"
	"sync"
	"time"
)

// probes prove that what this node publishes reaches its receiving connections. A connection to a
// server that was the master stays open, but receives nothing; only this finds out.
type probes struct {
	mu        sync.Mutex
	byChannel map[string]*probe
}

// A probe is that of one connection.
type probe struct {
	sent       uint64       // number of the last one
	returned   uint64       // number of the last one that was received
	unreturned []unreturned // those that were published, in their order
	lost       bool         // a later one than one of these was received
}

// An unreturned probe was published at a time and not received yet.
type unreturned struct {
	number uint64
	at     time.Time
}

const (
	// probeTimeout is how long a probe may take to return after it was published, on a
	// connection on which nothing else arrives.
	probeTimeout = time.Second

	// busyProbeTimeout is the same for a connection on which messages arrive, behind which the
	// probe may wait.
	busyProbeTimeout = 10 * time.Second
)

// sendProbes publishes a probe for each connection. It replaces the connections that have lost one,
// and suspects those whose probe does not return: what it waits behind may still arrive.
func (s *Node) sendProbes() {
	current := s.link.Probes()
	s.probes.keep(current)
	for _, p := range current {
		switch lost, late := s.probes.check(p); {
		case lost:
			s.link.Reconnect(p.Channel)
			continue
		case late:
			s.link.Suspect(p.Channel)
		}
		number := s.probes.next(p)
		m := nodeMessage{kind: kindProbe, packet: binary.AppendUvarint(nil, number)}
		s.outbox.send(p.Channel, m, func() { s.probes.published(p.Channel.Name, number) })
	}
}

// keep removes the probes of connections that do not exist anymore.
func (ps *probes) keep(current []Probe) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	kept := make(map[string]*probe, len(current))
	for _, p := range current {
		if kept[p.Channel.Name] = ps.byChannel[p.Channel.Name]; kept[p.Channel.Name] == nil {
			kept[p.Channel.Name] = &probe{}
		}
	}
	ps.byChannel = kept
}

// check reports whether a probe was lost, and whether one did not return in time. It then forgets
// what was lost.
func (ps *probes) check(p Probe) (lost, late bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	state := ps.byChannel[p.Channel.Name]
	if state.lost {
		state.lost = false
		return true, false
	}
	if len(state.unreturned) == 0 {
		return false, false
	}
	age := time.Since(state.unreturned[0].at)
	return false, age > probeTimeout && (age > busyProbeTimeout || p.Idle > probeTimeout)
}

// restart begins the time again in which probes must return, after a pause of this process.
func (ps *probes) restart() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, p := range ps.byChannel {
		for i := range p.unreturned {
			p.unreturned[i].at = time.Now()
		}
	}
}

// next returns the number of the next probe.
func (ps *probes) next(p Probe) uint64 {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	state := ps.byChannel[p.Channel.Name]
	state.sent++
	return state.sent
}

// published records that a probe was published. It may have returned before.
func (ps *probes) published(channel string, number uint64) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byChannel[channel]; p != nil && number > p.returned {
		p.unreturned = append(p.unreturned, unreturned{number, time.Now()})
	}
}

// returned records that a probe was received. Those before it that were published do not return any
// more.
func (ps *probes) returned(channel string, m *nodeMessage) {
	var number uint64
	if !m.readUvarint(&number) {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.byChannel[channel]
	if p == nil || number <= p.returned {
		return
	}
	p.returned = number
	for len(p.unreturned) > 0 && p.unreturned[0].number <= number {
		p.lost = p.lost || p.unreturned[0].number < number
		p.unreturned = p.unreturned[1:]
	}
	if len(p.unreturned) == 0 {
		p.unreturned = nil
	}
}
