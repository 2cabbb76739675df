//go:build !race

package ask

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// The race detector adds allocations.
func TestNode_ConnIDAllocatesOnce(t *testing.T) {
	n := newNode("a node")
	assert.Equal(t, 1.0, testing.AllocsPerRun(100, func() { _ = n.NewConnID() }))
}
