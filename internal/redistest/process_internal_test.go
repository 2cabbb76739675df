package redistest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/freeport"
)

func TestBoot_TriesAnotherPort(t *testing.T) {
	taken := Start(t)
	ports := []int{taken.process.port, taken.process.port, freeport.Pick()}
	next := func() int {
		port := ports[0]
		ports = append(ports[1:], freeport.Pick())
		return port
	}
	p, err := boot(next, nil, func(port int) []string { return nodeArgs(port, t.TempDir()) })
	require.NoError(t, err)
	t.Cleanup(p.kill)
	assert.NotEqual(t, taken.Addr, p.addr())
}
