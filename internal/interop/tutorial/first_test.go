package tutorial_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
)

type (
	add struct {
		Text string `json:"text"`
	}
	item struct {
		Text string `json:"text"`
	}
)

func (add) MessageType() string  { return "ADD" }
func (item) MessageType() string { return "ITEM" }

// TestSteps_FirstOneRuns builds the program of the first step, and is its client.
func TestSteps_FirstOneRuns(t *testing.T) {
	p := newProject(t, 1)
	p.check()
	n := p.start(nil)
	received := make(chan item, 1)
	c := client.New("ws://"+n.addr+"/ws", nil)
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	client.On(c, func(m item, _ *client.Received) { received <- m })
	require.NoError(t, client.Send(t.Context(), c, add{"milk"}))
	select {
	case m := <-received:
		assert.Equal(t, item{"milk"}, m)
	case <-t.Context().Done():
	}
}
