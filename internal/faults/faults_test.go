//go:build unix

// Package faults_test runs processes with a router each, on a real Redis, injects faults, and
// counts every message, every reported loss, every member and every token.
package faults_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

var update = flag.String("faults.update", "", "the file whose table of results is replaced")

// A fault is injected into a run. Its function calls run.end when the fault ends, and
// run.tookEffect.
type fault struct {
	name        string // with %s for a duration
	kind        redisKind
	short, full time.Duration // how long it lasts; without a short one, it is only in the full form
	inject      func(*run)
}

const momentary = time.Nanosecond // has no duration

var allFaults = []fault{
	{"node killed, another one started after %s", single, 2 * time.Second, 2 * time.Second, killNode},
	{"node stopped for %s", single, 7 * time.Second, 7 * time.Second, stopNodeBriefly},
	{"node stopped for %s", single, 20 * time.Second, 70 * time.Second, stopNode},
	{"node shut down after 1,000 publications, while Redis does not respond to it for %s", single, time.Second, time.Second, shutNodeDown},
	{"one node cut off for %s", single, 3 * time.Second, 10 * time.Second, cutOne},
	{"all nodes cut off for %s", single, 3 * time.Second, 10 * time.Second, cutAll},
	{"one node sends, but receives nothing for %s", single, 7 * time.Second, 10 * time.Second, stallReplies},
	{"one node delayed by 50 ms for %s", single, 3 * time.Second, 10 * time.Second, delay},
	{"one node cannot publish for %s, but receives", single, 6 * time.Second, 10 * time.Second, denyPublish},
	{"Redis killed, empty after %s", single, 2 * time.Second, 5 * time.Second, restartRedis},
	{"Redis paused for %s", single, 3 * time.Second, 3 * time.Second, pauseRedis},
	{"planned failover by Sentinel", sentinel, momentary, momentary, failOver},
	{"master under Sentinel killed", sentinel, 0, momentary, killMonitored},
	{"master of a Cluster killed", cluster, momentary, momentary, killMaster},
	{"slot of a Cluster moved", cluster, 0, momentary, moveSlot},
}

// title returns the name of a fault that lasts for a time.
func (f *fault) title(lasts time.Duration) string {
	return strings.Replace(f.name, "%s", fmt.Sprintf("%d s", lasts/time.Second), 1)
}

// TestFaults injects faults into clusters of their own, and prints a table of the results. A soak test
// injects all of them in their full length.
func TestFaults(t *testing.T) {
	testscale.FullOnly(t, "TestRecovery_EveryClientReceivesEveryPublicationOnce")
	redistest.Start(t) // skips the test without redis-server
	fullForm := testscale.Soak() > 0
	results := make([]result, len(allFaults))
	t.Run("all", func(t *testing.T) {
		for i, f := range allFaults {
			if f.short == 0 && !fullForm {
				continue
			}
			lasts := f.short
			if fullForm {
				lasts = f.full
			}
			t.Run(f.title(lasts), func(t *testing.T) {
				t.Parallel()
				r := startRun(t, f.kind, lasts, fullForm)
				f.inject(r)
				results[i] = r.finish(f.title(lasts))
			})
		}
	})
	results = slices.DeleteFunc(results, func(r result) bool { return r.fault == "" })
	t.Log("\n" + table(results))
	if *update != "" && !t.Failed() {
		require.Len(t, results, len(allFaults), "the table needs all faults: use PENSTOCK_TESTS=1h")
		require.NoError(t, updateTable(*update, table(results)))
	}
}
