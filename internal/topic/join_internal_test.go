package topic

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// TestWithhold_OlderPublications may read what follows position 3 of the epoch b, which follows a
// and precedes c.
func TestWithhold_OlderPublications(t *testing.T) {
	after := &broker.Position{Epoch: "b", Offset: 3}
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
			j = withhold(j, after)
			var got []uint64
			for _, p := range j.Publications {
				got = append(got, p.Position.Offset)
			}
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.recovered, j.Recovered)
		})
	}
}
