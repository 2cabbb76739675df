package simtest

import (
	"testing"
	"time"
)

// TestScenario_ProgressOfSlowLoopIsNotLost calls for progress that the client takes more slowly than it arrives: an end without an
// error has all of it.
func TestScenario_ProgressOfSlowLoopIsNotLost(t *testing.T) {
	problems := simulate(t, plan{
		Seed: 1, Mood: calm, Nodes: 2,
		Clients: []clientPlan{{User: "user1"}},
		Steps: []step{
			{Wait: time.Second, Do: "climb", N: 366, For: 20 * time.Millisecond},
		},
	})
	for _, problem := range problems {
		t.Error(problem)
	}
}
