package router

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// TestTopicGrant_Withhold has a grant from position 3 of the epoch b, which follows a and precedes c.
func TestTopicGrant_Withhold(t *testing.T) {
	grant := &topicGrant{Epoch: "b", Offset: 3}
	for name, tt := range map[string]struct {
		current   string   // epoch
		labels    []string // epochs of the publications with the offsets from 1
		want      []uint64
		recovered bool
	}{
		"same epoch":                    {"b", []string{"b", "b", "b", "b", "b"}, []uint64{4, 5}, true},
		"only older ones":               {"b", []string{"b", "b"}, nil, true},
		"an earlier epoch, too":         {"b", []string{"a", "a", "b", "b"}, []uint64{4}, true},
		"later epoch, nothing withheld": {"c", []string{"c", "c"}, []uint64{1, 2}, true},
		"later epoch, some withheld":    {"c", []string{"b", "b", "c", "c"}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			j := sequencer.Joined{Recovered: true, Position: broker.Position{Epoch: tt.current, Offset: uint64(len(tt.labels))}}
			for i, epoch := range tt.labels {
				j.Publications = append(j.Publications, broker.Publication{Position: broker.Position{Epoch: epoch, Offset: uint64(i + 1)}})
			}
			j = grant.withhold(j)
			var got []uint64
			for _, p := range j.Publications {
				got = append(got, p.Position.Offset)
			}
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.recovered, j.Recovered)
		})
	}
}

func TestTopicGrant_Add(t *testing.T) {
	for _, tt := range []struct{ first, second, want topicGrant }{
		{topicGrant{}, topicGrant{Epoch: "a", Offset: 5}, topicGrant{Epoch: "a", Offset: 5}},
		{topicGrant{Epoch: "a", Offset: 5}, topicGrant{Epoch: "a", Offset: 2}, topicGrant{Epoch: "a", Offset: 2}},
		{topicGrant{Epoch: "a", Offset: 5}, topicGrant{Epoch: "a", Offset: 9}, topicGrant{Epoch: "a", Offset: 5}},
		{topicGrant{Epoch: "a", Offset: 5}, topicGrant{Epoch: "b", Offset: 2}, topicGrant{Epoch: "a", Offset: 5}},
		{topicGrant{Epoch: "a", Offset: 5}, topicGrant{}, topicGrant{Epoch: "a", Offset: 5}},
		{topicGrant{Joined: true, Info: "Ann"}, topicGrant{State: true, Info: "Bob"}, topicGrant{Joined: true, Info: "Ann", State: true}},
	} {
		assert.Equal(t, tt.want, tt.first.add(tt.second), fmt.Sprint(tt.first, tt.second))
	}
}
