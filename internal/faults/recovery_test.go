//go:build unix

package faults_test

import (
	"slices"
	"testing"

	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// These tests run node processes on real Redis servers, publish from several of them, move clients
// between them, and inject faults. Every publication is counted at every client; see
// recovery_check_test.go for what must hold.

// A scenario is a topology with the faults that fit it.
type scenario struct {
	name   string
	kind   topology
	faults []recoveryFault
	last   []recoveryFault // which can only end a run

	// ratio is how many of the returning clients must be recovered on topics with a full history.
	ratio float64
}

func scenarios() []scenario {
	return []scenario{
		{"server with its data", durable, slices.Concat(nodeFaults, linkFaults, serverFaults), nil, 1},
		{"server that loses its data", volatile, lossFaults, nil, 0.3},
		{"promoted replica", replicated, replicaFaults, nil, 1},
		{"two masters", replicated, splitFaults, nil, 0.6},
		{"Sentinel", monitored, sentinelFaults[:1], sentinelFaults[1:], 0.9},
		{"Cluster", clustered, clusterFaults[:2], clusterFaults[2:], 0.95},
	}
}

// TestRecovery_EveryClientReceivesEveryPublicationOnce injects each fault once. The quick tier cuts
// connections.
func TestRecovery_EveryClientReceivesEveryPublicationOnce(t *testing.T) {
	redistest.Start(t) // skips the test without redis-server
	cuts := []scenario{{"connections cut", durable, linkFaults[:2], nil, 1}}
	for i, s := range testscale.Pick(cuts, scenarios()) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			r := startRecovery(t, s.kind, uint64(i))
			rng := r.rng(0)
			for _, f := range slices.Concat(s.faults, s.last) {
				r.inject(rng, &f)
			}
			r.finish(s.ratio)
		})
	}
}
