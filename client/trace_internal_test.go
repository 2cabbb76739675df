//go:build !js

package client

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestTrace_NoneAllocatesNothing is what a message and a call of the server cost without tracing.
func TestTrace_NoneAllocatesNothing(t *testing.T) {
	c := New("ws://127.0.0.1:1", nil)
	ctx, m := context.Background(), &meta{TraceParent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if c.injectTrace(ctx) != nil || c.extractTrace(ctx, m) != ctx {
			t.Error("something is traced")
		}
	}))
}
