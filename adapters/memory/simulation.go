package memory

import (
	"time"

	"github.com/penstock-go/penstock/limit"
)

// A Simulation creates limiters on a clock of the caller, to replay recorded requests and to test
// without waiting. Apart from their clock, they are those of the functions with the same names.
//
// The clock may return any time from 1970 on. It must not go backwards, must stay within 30 years of
// the creation of a limiter, and must be safe for concurrent use if the limiters are used
// concurrently. The limiters call it once or several times per decision.
type Simulation struct {
	now func() time.Time
}

// NewSimulation returns a Simulation with the clock now.
func NewSimulation(now func() time.Time) *Simulation { return &Simulation{now} }

// NewLimiter is [NewLimiter] on the clock of the simulation.
func (s *Simulation) NewLimiter(policy limit.Policy) *Limiter {
	return newLimiter(policy, defaultMaxKeys, s.sinceCreation())
}

// NewCooldown is [NewCooldown] on the clock of the simulation.
func (s *Simulation) NewCooldown(policy limit.CooldownPolicy, onPenalty func(limit.Penalty)) *Cooldown {
	return newCooldown(policy, onPenalty, s.sinceCreation())
}

// NewSlidingLog is [NewSlidingLog] on the clock of the simulation.
func (s *Simulation) NewSlidingLog(policy limit.WindowPolicy) *CountLimiter[limit.WindowPolicy] {
	return newSlidingLog(policy, s.sinceCreation())
}

// NewSlidingCounter is [NewSlidingCounter] on the clock of the simulation.
func (s *Simulation) NewSlidingCounter(policy limit.WindowPolicy) *CountLimiter[limit.WindowPolicy] {
	return newSlidingCounter(policy, s.unixMicro)
}

// NewQuota is [NewQuota] on the clock of the simulation.
func (s *Simulation) NewQuota(policy limit.QuotaPolicy) *CountLimiter[limit.QuotaPolicy] {
	return newQuota(policy, s.unixMicro)
}

// sinceCreation returns a clock in microseconds since the call.
func (s *Simulation) sinceCreation() func() int64 {
	epoch := s.now()
	return func() int64 { return s.now().Sub(epoch).Microseconds() }
}

func (s *Simulation) unixMicro() int64 { return s.now().UnixMicro() }
