package inspect

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/router"
)

// TestTrace_BoundedInRateAndMemory adds more entries than a trace keeps.
func TestTrace_BoundedInRateAndMemory(t *testing.T) {
	var tr trace
	start := time.Unix(1_000_000, 0)
	for second := range 20 {
		for range 3 * maxTraceRate {
			tr.add(traceEntry{Time: start.Add(time.Duration(second) * time.Second)})
		}
		require.LessOrEqual(t, len(tr.entries), maxTraceEntries)
	}
	all, skipped := tr.after(0)
	assert.Len(t, all, maxRows)
	assert.EqualValues(t, 20*2*maxTraceRate, skipped)
	assert.Equal(t, tr.entries[0].Number, all[0].Number)
	rest, _ := tr.after(20*maxTraceRate - 3)
	require.Len(t, rest, 3)
	assert.EqualValues(t, 20*maxTraceRate, rest[2].Number)
	none, _ := tr.after(20 * maxTraceRate)
	assert.Empty(t, none)
}

// TestIngress_AllocatesNothingWithoutTraces measures what a message costs while an operator does
// not look.
func TestIngress_AllocatesNothingWithoutTraces(t *testing.T) {
	i := New(router.New(nil), &Options{Authorize: func(*http.Request, Action) (string, error) { return "", nil }})
	in := router.IngressContext{Type: "SAY", ReceivedAt: time.Now()}
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _ = i.ingress(context.Background(), in) }))
	handle := i.middleware(func(*router.Context) error { return nil })
	assert.Zero(t, testing.AllocsPerRun(1000, func() { _ = handle(nil) }))
}

func TestTruncate_KeepsValidUTF8(t *testing.T) {
	assert.Equal(t, "ab", truncate("ab", 2))
	assert.Equal(t, "a…", truncate("aéb", 2))
	assert.Equal(t, "\uFFFDb", truncate("\xffb", 9))
}
