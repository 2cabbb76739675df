package runs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/runs"
)

// TestState_Transitions has every pair of states: what is not in the table must not follow.
func TestState_Transitions(t *testing.T) {
	all := []runs.State{runs.Queued, runs.Running, runs.Completed, runs.Failed, runs.Stopped, runs.Interrupted, runs.Exhausted, runs.Expired}
	table := map[runs.State]string{
		//                   queued running completed failed stopped interrupted exhausted expired
		runs.Queued:      "  -      yes     -         -      yes     yes         -         -",
		runs.Running:     "  -      -       yes       yes    yes     yes         yes       yes",
		runs.Completed:   "  -      -       -         -      -       -           -         -",
		runs.Failed:      "  -      -       -         -      -       -           -         -",
		runs.Stopped:     "  -      -       -         -      -       -           -         -",
		runs.Interrupted: "  -      -       -         -      -       -           -         -",
		runs.Exhausted:   "  -      -       -         -      -       -           -         -",
		runs.Expired:     "  -      -       -         -      -       -           -         -",
	}
	for _, from := range all {
		row := strings.Fields(table[from])
		for i, to := range all {
			assert.Equal(t, row[i] == "yes", from.Precedes(to), "%s → %s", from, to)
		}
		assert.Equal(t, from != runs.Queued && from != runs.Running, from.Ended(), from)
	}
	assert.False(t, runs.State("").Ended())
}
