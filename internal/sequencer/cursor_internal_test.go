package sequencer

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
)

// cursorPage returns a page of the epoch e with the publications from an offset to another, of a topic at a position.
func cursorPage(from, to, at uint64) broker.Page {
	page := broker.Page{Position: broker.Position{Epoch: "e", Offset: at}}
	for n := from; n <= to; n++ {
		page.Publications = append(page.Publications, broker.Publication{Position: broker.Position{Epoch: "e", Offset: n}})
	}
	return page
}

// reachPhase brings a Cursor that has 3 of 3 publications, and is live, into a state.
var reachPhase = map[string]func(*Cursor){
	"behind":   func(c *Cursor) { c.lose() },
	"reading":  func(c *Cursor) { c.lose(); c.next() },
	"outdated": func(c *Cursor) { c.lose(); c.next(); c.lose() },
	"waiting":  func(c *Cursor) { c.lose(); c.next(); c.failed(errors.New("away")) },
	"live":     func(*Cursor) {},
	"lost":     func(c *Cursor) { c.lose(); c.next(); c.page(cursorPage(5, 5, 5)) },
	"refused":  func(c *Cursor) { c.lose(); c.next(); c.failed(errors.Errorf(errors.InvalidArgument, "no")) },
}

// cursorEvents are those of the table in doc.go; they return their effect.
var cursorEvents = map[string]func(*Cursor) string{
	"run": func(c *Cursor) string {
		if _, read := c.next(); read {
			return "read"
		}
		return ""
	},
	"part":    func(c *Cursor) string { return answer(c, cursorPage(4, 4, 5)) },
	"all":     func(c *Cursor) string { return answer(c, cursorPage(4, 5, 5)) },
	"gap":     func(c *Cursor) string { return answer(c, cursorPage(5, 5, 5)) },
	"failure": func(c *Cursor) string { return fail(c, errors.New("away")) },
	"refusal": func(c *Cursor) string { return fail(c, errors.Errorf(errors.FailedPrecondition, "no")) },
	"published": func(c *Cursor) string {
		if c.Published(broker.Position{Epoch: "e", Offset: 4}) {
			return "hand over"
		}
		return ""
	},
	"arrives": func(c *Cursor) string { c.arrive(broker.Position{Epoch: "e", Offset: 4}); return "" },
	"loss":    func(c *Cursor) string { c.lose(); return "" },
	"begin":   func(c *Cursor) string { c.Begin(); return "" },
}

func answer(c *Cursor, page broker.Page) string {
	switch handOver := c.page(page); {
	case len(handOver) > 0:
		return "hand over"
	case c.err != nil:
		return "report"
	}
	return ""
}

func fail(c *Cursor, err error) string {
	if c.failed(err) > 0 {
		return "wait"
	}
	return "report"
}

func (c *Cursor) name() string {
	return [...]string{"behind", "reading", "outdated", "waiting", "live", "lost", "refused"}[c.phase]
}

func newLiveCursor(t *testing.T) *Cursor {
	c := new(Cursor)
	c.next()
	require.Len(t, c.page(cursorPage(1, 3, 3)), 3)
	require.True(t, c.IsLive())
	return c
}

// TestCursor_EveryEventInEveryState compares Cursor with the table in the documentation of the package.
func TestCursor_EveryEventInEveryState(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "//\tevent")
	require.True(t, found)
	type cell struct{ next, effect string }
	table := map[[2]string]cell{}
	rows := regexp.MustCompile(`(?m)^//\t(\S.{10})(\S.{24}) (\S+) *(.*)$`).FindAllStringSubmatch(rest, -1)
	require.Len(t, rows, 1+15)
	for _, row := range rows[1:] {
		for state := range strings.FieldsSeq(row[2]) {
			key := [2]string{strings.TrimSpace(row[1]), state}
			assert.NotContains(t, table, key)
			assert.Contains(t, cursorEvents, key[0])
			assert.Contains(t, reachPhase, key[1])
			table[key] = cell{row[3], strings.TrimSpace(row[4])}
		}
	}
	for state, build := range reachPhase {
		for event, happens := range cursorEvents {
			want, ok := table[[2]string{event, state}]
			switch event {
			case "part", "all", "gap", "failure", "refusal":
				if state != "reading" && state != "outdated" {
					assert.False(t, ok, "%s in state %s cannot happen", event, state)
					continue
				}
			}
			if !ok {
				want = cell{next: state}
			}
			c := newLiveCursor(t)
			build(c)
			require.Equal(t, state, c.name())
			effect := happens(c)
			assert.Equal(t, want, cell{c.name(), effect}, "%s in state %s", event, state)
		}
	}
}

// TestCursor_ReadsAgainWhatHasArrived unless the page has it.
func TestCursor_ReadsAgainWhatHasArrived(t *testing.T) {
	for arrived, want := range map[uint64]string{3: "live", 4: "live", 5: "behind"} {
		c := newLiveCursor(t)
		c.lose()
		c.next()
		assert.False(t, c.Published(broker.Position{Epoch: "e", Offset: arrived}))
		require.Len(t, c.page(cursorPage(4, 4, 4)), 1)
		assert.Equal(t, want, c.name(), "publication %d", arrived)
	}
}

func TestCursor_FollowsIntoTheNextEpochIfNothingIsLost(t *testing.T) {
	for ended, want := range map[uint64]string{2: "lost", 3: "live", 4: "live"} {
		c := newLiveCursor(t)
		c.lose()
		c.next()
		page := cursorPage(4, 5, 5)
		page.Position.Epoch, page.Previous = "f", broker.Position{Epoch: "e", Offset: ended}
		c.page(page)
		assert.Equal(t, want, c.name(), "the epoch has ended at %d", ended)
	}
}
