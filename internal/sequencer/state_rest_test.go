package sequencer_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/sequencer"
)

func keyed(offset uint64, key string) broker.Publication {
	p := publication("e1", offset, fmt.Sprint(key, " of ", offset))
	p.StateKey = key
	return p
}

// joinRest joins a state of two parts at offset 2, and returns the rest. readState returns the second one.
func joinRest(t *testing.T, node *scriptedNode, seq *sequencer.Sequencer, readState func() broker.StatePart) *sequencer.StateRest {
	t.Helper()
	at := broker.Position{Epoch: "e1", Offset: 2}
	node.readState = func() broker.StatePart {
		return broker.StatePart{Publications: []broker.Publication{keyed(2, "a")}, Position: at, Next: "next"}
	}
	var rest *sequencer.StateRest
	prepare := func([]broker.Publication) error { return nil }
	require.NoError(t, seq.JoinState(t.Context(), broker.Position{}, nil, 1000, prepare, func(j sequencer.Joined) { rest = j.Rest }))
	require.False(t, rest.Complete())
	node.readState = readState
	t.Cleanup(rest.Close)
	return rest
}

func read(t *testing.T, rest *sequencer.StateRest) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := rest.Read(ctx)
	return err
}

// sendAll returns what Send passes.
func sendAll(rest *sequencer.StateRest) (sent []broker.Publication, err error) {
	err = rest.Send(func(part []broker.Publication) int {
		sent = append(sent, part...)
		return len(part)
	})
	return sent, err
}

func failOver(node *scriptedNode, seq *sequencer.Sequencer) {
	node.set(broker.Page{Position: broker.Position{Epoch: "e2", Offset: 2}, Previous: broker.Position{Epoch: "e1", Offset: 2}})
	seq.Following()
	synctest.Wait()
}

func TestStateRest_EndsIfTheStoreFailsOver(t *testing.T) {
	part := broker.StatePart{Publications: []broker.Publication{keyed(1, "b")}, Position: broker.Position{Epoch: "e1", Offset: 2}}
	for name, test := range map[string]func(t *testing.T, node *scriptedNode, seq *sequencer.Sequencer){
		"between the parts": func(t *testing.T, node *scriptedNode, seq *sequencer.Sequencer) {
			rest := joinRest(t, node, seq, func() broker.StatePart {
				return broker.StatePart{Publications: part.Publications, Position: broker.Position{Epoch: "e2", Offset: 2}}
			})
			failOver(node, seq)
			assert.Equal(t, errors.Unavailable, errors.CodeOf(read(t, rest)))
		},
		"while a part is read": func(t *testing.T, node *scriptedNode, seq *sequencer.Sequencer) {
			rest := joinRest(t, node, seq, func() broker.StatePart {
				failOver(node, seq)
				return part
			})
			require.NoError(t, read(t, rest))
			sent, err := sendAll(rest)
			assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
			assert.Empty(t, sent)
		},
		"while a part waits": func(t *testing.T, node *scriptedNode, seq *sequencer.Sequencer) {
			rest := joinRest(t, node, seq, func() broker.StatePart { return part })
			require.NoError(t, read(t, rest))
			failOver(node, seq)
			sent, err := sendAll(rest)
			assert.Equal(t, errors.Unavailable, errors.CodeOf(err))
			assert.Empty(t, sent)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node, seq := startScripted(t, broker.Position{Epoch: "e1", Offset: 2})
				test(t, node, seq)
			})
		})
	}
}

func TestStateRest_EndsWithTheSequencer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, seq := startScripted(t, broker.Position{Epoch: "e1", Offset: 2})
		rest := joinRest(t, node, seq, func() broker.StatePart {
			return broker.StatePart{Publications: []broker.Publication{keyed(1, "b")}, Position: broker.Position{Epoch: "e1", Offset: 2}}
		})
		require.NoError(t, read(t, rest))
		seq.Close()
		sent, err := sendAll(rest)
		assert.ErrorIs(t, err, sequencer.ErrClosed)
		assert.Empty(t, sent)
	})
}

// TestStateRest_LeavesOutWhatHasChanged publishes keys of a part while it is read, and while it waits.
func TestStateRest_LeavesOutWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, seq := startScripted(t, broker.Position{Epoch: "e1", Offset: 2})
		rest := joinRest(t, node, seq, func() broker.StatePart {
			seq.Publish(keyed(3, "b"))
			var part broker.StatePart
			part.Position = broker.Position{Epoch: "e1", Offset: 2}
			for _, key := range []string{"b", "c", "d"} {
				part.Publications = append(part.Publications, keyed(1, key))
			}
			part.Publications = append(part.Publications, keyed(3, "later than the state"))
			return part
		})
		require.NoError(t, read(t, rest))
		seq.Publish(keyed(4, "c"))
		sent, err := sendAll(rest)
		require.NoError(t, err)
		assert.Equal(t, []broker.Publication{keyed(1, "d")}, sent)
		assert.True(t, rest.Complete())
	})
}

// TestStateRest_TooManyChangesAreAnError changes more keys during each attempt than a reader remembers.
func TestStateRest_TooManyChangesAreAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, seq := startScripted(t, broker.Position{Epoch: "e1", Offset: 2})
		offset, attempts := uint64(2), 0
		rest := joinRest(t, node, seq, func() broker.StatePart {
			attempts++
			for n := range 2000 {
				offset++
				seq.Publish(keyed(offset, fmt.Sprint("key ", n)))
			}
			node.set(broker.Page{Position: broker.Position{Epoch: "e1", Offset: offset}})
			return broker.StatePart{Publications: []broker.Publication{keyed(1, "key 1999")}, Position: broker.Position{Epoch: "e1", Offset: 2}}
		})
		assert.Equal(t, errors.Unavailable, errors.CodeOf(read(t, rest)))
		assert.Equal(t, 3, attempts)
	})
}
