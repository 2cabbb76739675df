package memory

import (
	"fmt"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/adapter"
)

// SetPolicy replaces the numbers of the limiter's policy. Every bucket lacks as many tokens as
// before. Each of up to 64 shards is locked while its buckets are converted; calls for keys of
// other shards may still follow the old policy meanwhile.
func (l *Limiter) SetPolicy(policy limit.Policy) error {
	if err := policy.Validate(); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	l.changes.Lock()
	defer l.changes.Unlock()
	if name := l.Describe()[0].Name; policy.Name != name {
		return fmt.Errorf("memory: the policy is named %q; it must keep the name %q", policy.Name, name)
	}
	l.describe(policy)
	units := adapter.UnitsOf(policy)
	for i := range l.shards {
		s := &l.shards[i]
		s.mu.Lock()
		if s.table.Load().units != units {
			s.rebuildLocked(units, l.clock())
		}
		s.mu.Unlock()
	}
	return nil
}

// Describe returns the capacity and the refill of the policy. Callers
// share the slice and must not change it.
func (l *Limiter) Describe() []limit.Description { return *l.description.Load() }

func (l *Limiter) describe(p limit.Policy) {
	l.description.Store(&[]limit.Description{adapter.UnitsOf(p).Description(p.Name)})
}
