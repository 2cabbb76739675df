package cluster

import (
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
		s.outbox.send(p.Channel, nodeMessage{kind: kindProbe}, func() { s.probes.published(p.Channel.Name) })
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

func (ps *probes) published(channel string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byChannel[channel]; p != nil && p.unreturned.IsZero() {
		p.unreturned = time.Now()
	}
}

func (ps *probes) returned(channel string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if p := ps.byChannel[channel]; p != nil {
		p.unreturned = time.Time{}
	}
}
