package inspect

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestMergeTopics_TakesWhatANodeSends has a node that sends more topics than asked, and one that
// promises topics that it does not send.
func TestMergeTopics_TakesWhatANodeSends(t *testing.T) {
	rows, next := mergeTopics([]nodeAnswer[topicPage]{{Result: topicPage{More: true}}})
	assert.Empty(t, rows)
	assert.Empty(t, next)
	many := topicPage{Rows: make([]topicRow, 3*maxRows)}
	for n := range many.Rows {
		many.Rows[n].Name = string(rune('a' + n))
	}
	rows, next = mergeTopics([]nodeAnswer[topicPage]{{Result: many}, {Result: topicPage{More: true}}})
	assert.Len(t, rows, maxRows)
	assert.Equal(t, rows[maxRows-1].Name, next)
}
