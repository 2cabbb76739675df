package simtest

import (
	"testing"
	"time"
)

// The plans below are what was left of those that have found faults while the store fails.

// A subscription with the state kept the value of a key after a failover had lost it, and received no state after OnLoss.
func TestScenario_StateAfterAFailover(t *testing.T) {
	repeat(t, 5, plan{
		Seed: 119, Mood: mixed, Nodes: 2,
		Clients: []clientPlan{{User: "user1", Resume: true}},
		Steps: []step{
			{Wait: 18570 * time.Millisecond, Do: "subscribeState", Topic: "state/2"},
			{Wait: 9601 * time.Millisecond, Do: "set", Node: 2, Topic: "state/2", N: 5},
			{Wait: 2570 * time.Millisecond, Do: "set", Node: 1, Topic: "state/2", N: 2},
			{Wait: 3461 * time.Millisecond, Do: "set", Node: 2, Topic: "state/2", N: 3},
			{Wait: 1125 * time.Millisecond, Do: "failOver", N: 3},
		},
	})
}
