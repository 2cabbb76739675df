package simtest

import (
	"os"
	"testing"
	"time"
)

func TestTmp(t *testing.T) {
	logOutput = os.Stdout
	problems := simulate(t, plan{
		Seed: 8, Mood: "calm", Nodes: 2,
		Clients: []clientPlan{
			{User: "user1", Fallback: true},
		},
		Steps: []step{
			{Wait: 31473 * time.Millisecond, Do: "subscribeState", Topic: "state/1"},
		},
	})
	t.Log(problems)
}
