package calls_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/calls"
)

func TestOutgoing_BeginsUpToTheLimit(t *testing.T) {
	var out calls.Outgoing[string]
	call, open := out.Begin(0)
	assert.Nil(t, call)
	assert.Equal(t, 1, open)
	first, open := out.Begin(2)
	assert.NotNil(t, first)
	assert.Equal(t, 1, open)
	second, open := out.Begin(2)
	assert.Equal(t, 2, open)
	assert.NotEqual(t, first.ID, second.ID)
	call, open = out.Begin(2)
	assert.Nil(t, call)
	assert.Equal(t, 3, open)
	out.End(first)
	third, _ := out.Begin(2)
	assert.NotNil(t, third, "there is room again")
}

// TestOutgoing_AwaitEnds lets a caller wait, and either answers it or ends its wait.
func TestOutgoing_AwaitEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		end    func(out *calls.Outgoing[string], id string, done, closed chan struct{})
		answer string
	}{
		"answered":          {func(out *calls.Outgoing[string], id string, _, _ chan struct{}) { out.Deliver(id, "yes") }, "yes"},
		"done":              {func(_ *calls.Outgoing[string], _ string, done, _ chan struct{}) { close(done) }, ""},
		"connection closed": {func(_ *calls.Outgoing[string], _ string, _, closed chan struct{}) { close(closed) }, ""},
		"answered and done": {func(out *calls.Outgoing[string], id string, done, _ chan struct{}) {
			out.Deliver(id, "yes")
			close(done)
		}, "yes"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out calls.Outgoing[string]
				call, _ := out.Begin(1)
				done, closed := make(chan struct{}), make(chan struct{})
				go tt.end(&out, call.ID, done, closed)
				answer, ok := out.Await(call, done, closed)
				assert.Equal(t, tt.answer, answer)
				assert.Equal(t, tt.answer != "", ok)
				assert.False(t, out.Deliver(call.ID, "late"))
			})
		})
	}
}
