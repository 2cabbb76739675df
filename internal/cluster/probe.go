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
	sent       uint64    // number of the last one
	returned   uint64    // number of the last one that was received
	unreturned time.Time // when the first probe was published that did not return; or zero
}

const (
	// probeTimeout is how long a probe may take to return after it was published, on a
	// connection on which nothing else arrives.
	probeTimeout = time.Second

	// busyProbeTimeout is the same for a connection on which messages arrive, behind which the
	// probe may wait.
	busyProbeTimeout = 10 * time.Second
)

// sendProbes publishes a probe for each connection, and replaces those whose probe does not return.
func (s *Session) sendProbes() {
	current := s.link.Probes()
	s.probes.keep(current)
	for _, p := range current {
		if s.probes.isLost(p) {
			s.link.Reconnect(p.Channel)
			continue
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

// isLost reports whether a probe did not return in time. It then forgets the probe.
func (ps *probes) isLost(p Probe) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	state := ps.byChannel[p.Channel.Name]
	if state.unreturned.IsZero() {
		return false
	}
	age := time.Since(state.unreturned)
	if age <= probeTimeout || age <= busyProbeTimeout && p.Idle <= probeTimeout {
		return false
	}
	state.unreturned = time.Time{}
	return true
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
	if p := ps.byChannel[channel]; p != nil && p.unreturned.IsZero() && number > p.returned {
		p.unreturned = time.Now()
	}
}

// returned records that a probe was received.
func (ps *probes) returned(channel string, m *nodeMessage) {
	var number uint64
	if !m.readUvarint(&number) {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byChannel[channel]; p != nil {
		p.returned, p.unreturned = max(p.returned, number), time.Time{}
	}
}
