package simtest

import (
	"regexp"
	"slices"
	"testing"
	"time"
)

// shrink returns a plan with fewer steps and clients in which the same kind of problem occurs, and the problems of its last
// run. The scheduler is not part of the plan, so each candidate has several runs. It ends after a time at the latest.
func shrink(t *testing.T, p plan, problems []string, within time.Duration) (smaller plan, last []string) {
	t.Helper()
	s := &shrinker{t: t, kind: kindOf(problems[0]), deadline: time.Now().Add(within), plan: p, problems: problems}
	for size := len(p.Steps) / 2; size >= 1; size /= 2 {
		s.leaveOut(size)
	}
	s.leaveOut(1)
	for i := range slices.Backward(s.plan.Clients) {
		if c, ok := s.plan.withoutClient(i); ok {
			s.try(c)
		}
	}
	for s.plan.Nodes > 2 {
		c := s.plan
		c.Nodes--
		if slices.ContainsFunc(c.Steps, func(s step) bool { return s.Node > c.Nodes }) || !s.try(c) {
			break
		}
	}
	return s.plan, s.problems
}

type shrinker struct {
	t        *testing.T
	kind     string
	deadline time.Time
	plan     plan // the smallest one that fails
	problems []string
}

// leaveOut tries to leave out each group of size steps.
func (s *shrinker) leaveOut(size int) {
	for from := 0; from < len(s.plan.Steps); {
		c := s.plan
		to := min(from+size, len(c.Steps))
		c.Steps = slices.Clone(c.Steps)
		if to < len(c.Steps) { // the times of the others stay
			for _, left := range c.Steps[from:to] {
				c.Steps[to].Wait += left.Wait
			}
		}
		c.Steps = slices.Delete(c.Steps, from, to)
		if !s.try(c) {
			from = to
		}
	}
}

// try makes a plan the smallest one if it fails.
func (s *shrinker) try(c plan) bool {
	for range max(3, *runsOfSeed) {
		if time.Now().After(s.deadline) {
			return false
		}
		problems := simulate(s.t, c)
		if i := slices.IndexFunc(problems, func(p string) bool { return kindOf(p) == s.kind }); i >= 0 {
			s.plan, s.problems = c, problems
			return true
		}
	}
	return false
}

// withoutClient returns a plan without a client that no step uses.
func (p plan) withoutClient(i int) (plan, bool) {
	if len(p.Clients) == 1 || slices.ContainsFunc(p.Steps, func(s step) bool { return s.Client == i }) {
		return plan{}, false
	}
	p.Clients = slices.Delete(slices.Clone(p.Clients), i, i+1)
	p.Steps = slices.Clone(p.Steps)
	for j := range p.Steps {
		if p.Steps[j].Client > i {
			p.Steps[j].Client--
		}
	}
	return p, true
}

var numbers = regexp.MustCompile(`[0-9.]+(m?s|m[0-9.]+s)?|\{[A-Z0-9]+ `)

// kindOf returns a problem without what differs from run to run.
func kindOf(problem string) string {
	return numbers.ReplaceAllString(problem[:min(len(problem), 200)], "#")
}
