//go:build unix

package faults_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recordOf returns the record of lines, which begin with the name of the node.
func recordOf(t *testing.T, lines ...string) *record {
	t.Helper()
	r := newRecord()
	for _, line := range lines {
		r.add(line[:1], line[2:])
	}
	require.Empty(t, r.invalid)
	return r
}

func TestCountLosses(t *testing.T) {
	published := []string{"a P 10 0 1", "a P 20 0 2", "a P 30 0 3"}
	for name, c := range map[string]struct {
		lines  []string
		killed string
		want   losses // unreported is compared by length
	}{
		"delivered":                {[]string{"b D 11 0 a 1", "b D 21 0 a 2", "b D 31 0 a 3"}, "", losses{messages: 3}},
		"subscribed later":         {[]string{"b D 21 0 a 2", "b D 31 0 a 3"}, "", losses{messages: 2}},
		"lost and reported":        {[]string{"b D 11 0 a 1", "b R 25 0 1", "b D 31 0 a 3"}, "", losses{messages: 3, lost: 1, reported: 1, reports: 1, perTopic: 1}},
		"reported too early":       {[]string{"b D 11 0 a 1", "b R 15 0 1", "b D 31 0 a 3"}, "", losses{messages: 3, lost: 1, reports: 1, perTopic: 1, unreported: []string{""}}},
		"reported in another room": {[]string{"b D 11 0 a 1", "b R 25 1 1", "b D 31 0 a 3"}, "", losses{messages: 3, lost: 1, reports: 1, perTopic: 1, unreported: []string{""}}},
		"of a user, reported":      {[]string{"b D 11 4 a 1", "b R 25  1", "b D 31 4 a 3", "a P 10 4 1", "a P 20 4 2", "a P 30 4 3"}, "", losses{messages: 3, lost: 1, reported: 1, reports: 1, perTopic: 1}},
		"not reported":             {[]string{"b D 11 0 a 1", "b D 31 0 a 3"}, "", losses{messages: 3, lost: 1, unreported: []string{""}}},
		"repeated":                 {[]string{"b D 11 0 a 1", "b D 21 0 a 2", "b D 22 0 a 2", "b D 31 0 a 3"}, "", losses{messages: 3, duplicated: 1}},
		"reordered":                {[]string{"b D 11 0 a 1", "b D 21 0 a 3", "b D 31 0 a 2"}, "", losses{messages: 3, duplicated: 1}},
		"not sent before a kill":   {[]string{"b D 11 0 a 1", "b D 21 0 a 2"}, "a", losses{messages: 2, unsent: 1}},
		"lost before a kill":       {[]string{"b D 11 0 a 1", "b D 31 0 a 3"}, "a", losses{messages: 3, lost: 1, unreported: []string{""}}},
	} {
		t.Run(name, func(t *testing.T) {
			got := recordOf(t, append(c.lines, published...)...).countLosses([]string{"b"}, c.killed)
			assert.Len(t, got.unreported, len(c.want.unreported))
			got.unreported = c.want.unreported
			assert.Equal(t, c.want, got)
		})
	}
}

func TestRecoveredAfter_CountsFromLastLoss(t *testing.T) {
	var lines []string
	for room := range streams {
		for num, at := range []int{10, 110, 210, 310} {
			for _, node := range []string{"a", "b"} {
				lines = append(lines, fmt.Sprintf("%s P %d %d %d", node, at, room, num+1))
			}
			lines = append(lines, fmt.Sprintf("a D %d %d b %d", at+5, room, num+1))
			if room != 2 || num != 2 { // the message at 210 is lost
				lines = append(lines, fmt.Sprintf("b D %d %d a %d", at+5, room, num+1))
			}
		}
	}
	recovered, err := recordOf(t, lines...).recoveredAfter([]string{"a", "b"}, 100)
	require.NoError(t, err)
	assert.EqualValues(t, 215, recovered)
	_, err = recordOf(t, lines...).recoveredAfter([]string{"a", "b"}, 400)
	assert.Error(t, err)
}

func TestConvergedAfter_NeedsAllMembersAndNoOthers(t *testing.T) {
	view := func(members string) string { return members + ";a,b;a,b;a,b;a,b" }
	nodes := []string{"a", "b"}
	lines := []string{
		"a V 10 a,a-1 " + view("a,a-1,b"), "b V 20 b " + view("a,a-1,b"),
		"b V 30 b " + view("a,b"), "b V 120 b " + view("a,a-1,b"),
	}
	converged, err := recordOf(t, lines...).convergedAfter(nodes, 100)
	require.NoError(t, err)
	assert.EqualValues(t, 20, converged)

	_, err = recordOf(t, append(lines, "a V 130 a "+view("a,b"))...).convergedAfter(nodes, 100)
	assert.Error(t, err, "b has a member that is gone")
	_, err = recordOf(t, lines[:3]...).convergedAfter(nodes, 100)
	assert.Error(t, err, "a member is missing on b")
	_, err = recordOf(t, append(lines, "b V 130 b "+view("a,a-1,b")+",c")...).convergedAfter(nodes, 100)
	assert.Error(t, err, "b has a member of a node that is gone in a room")
	converged, err = recordOf(t, append(lines, "c V 130 c "+view("c"))...).convergedAfter(nodes, 100)
	require.NoError(t, err, "a node that is gone does not count")
	assert.EqualValues(t, 20, converged)
}

func TestExcess_IsThatOfWorstInterval(t *testing.T) {
	second := int64(time.Second)
	grants := func(n int, at int64) (all []grant) {
		for range n {
			all = append(all, grant{1, at, at})
		}
		return all
	}
	assert.InDelta(t, 0, excess(grants(50, second), 50, 100), 1e-9)
	assert.InDelta(t, 1, excess(grants(51, second), 50, 100), 1e-9)
	later := append(grants(50, second), grants(60, second+second/2)...)
	assert.InDelta(t, 10, excess(later, 50, 100), 1e-9, "0.5 s return 50 tokens")
	assert.InDelta(t, 10, excess(append(later, grants(1, 9*second)...), 50, 100), 1e-9)
	slow := append(grants(50, second), grant{1, second - 1, 2 * second})
	assert.InDelta(t, 0, excess(slow, 50, 100), 1e-9, "a grant may have been made when it was received")
}

func TestUpdateTable_ReplacesOnlyTable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "guide.md")
	require.NoError(t, os.WriteFile(file, []byte("before\n"+tableBegin+"old\n"+tableEnd+"after\n"), 0o600))
	require.NoError(t, updateTable(file, "new\n"))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "before\n"+tableBegin+"\nnew\n\n"+tableEnd+"after\n", string(text))
	require.NoError(t, os.WriteFile(file, []byte("no table\n"), 0o600))
	assert.Error(t, updateTable(file, "new\n"))
}
