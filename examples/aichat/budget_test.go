package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/aisdk"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/runmessages"
	"github.com/penstock-go/penstock/router/routertest"
	"github.com/penstock-go/penstock/run"
)

type (
	attach = runmessages.Attach[aisdk.Chunk]
	stop   = runmessages.Stop[aisdk.Chunk]
	ended  = runmessages.Ended
)

// read returns the text of a run of ann's chat, and its end.
func read(page *routertest.Conn, from run.From) (text string, end ended) {
	p := routertest.Start(page, attach{Topic: "answer/ann/chat", Run: from.Run, From: from.Item})
	for part := range routertest.Items[run.Part[aisdk.Chunk]](p) {
		if part.Item != nil && part.Item.Delta != nil {
			text += *part.Item.Delta
		}
	}
	return text, routertest.ReceiveAnswer[ended](p)
}

// TestBudget_IsPerMinuteAndPerDay asks long questions, whose answers are longer than the budget.
func TestBudget_IsPerMinuteAndPerDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, "-tokens-per-minute=400", "-tokens-per-day=900")
		page := routertest.Dial(t, s.router, routertest.Token("ann"))
		long := strings.Repeat("word ", 100)
		routertest.Call[Asked](page, Ask{"chat", "1", long})
		_, end := read(page, run.From{})
		assert.Equal(t, "exhausted", end.State)
		require.NotNil(t, end.Error)
		assert.Equal(t, map[string]any{"policy": "tokens per minute"}, end.Error.Details)

		err := routertest.CallError(page, Ask{"chat", "2", long})
		assert.Equal(t, errors.ResourceExhausted, err.Code)
		assert.Equal(t, "tokens per minute", errors.DetailsOf[errors.LimitDetails](err).Policy)
		assert.Positive(t, err.RetryAfter)
		assert.LessOrEqual(t, err.RetryAfter, time.Minute)
		time.Sleep(time.Minute)
		routertest.Call[Asked](page, Ask{"chat", "2", long})
		_, end = read(page, run.From{})
		assert.Equal(t, map[string]any{"policy": "tokens per day"}, end.Error.Details)

		time.Sleep(24 * time.Hour)
		b := left(page)
		assert.Equal(t, []int64{400, 900}, []int64{b["tokens per minute"].Left, b["tokens per day"].Left})
	})
}

func TestBudget_PageSeesWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t)
		page := routertest.Dial(t, s.router, routertest.Token("ann"))
		untouched := map[string]BudgetLimit{
			"tokens per minute": {Name: "tokens per minute", Left: 2000, Max: 2000},
			"tokens per day":    {Name: "tokens per day", Left: 20_000, Max: 20_000},
		}
		assert.Equal(t, untouched, left(page))
		routertest.Call[Asked](page, Ask{"chat", "1", "hello"})
		assert.EqualValues(t, 20_000-slice-2, left(page)["tokens per day"].Left, "a slice and the question are reserved")
		text, _ := read(page, run.From{})
		synctest.Wait()
		b := left(page)
		assert.EqualValues(t, 20_000-2-strings.Count(text, " ")-1, b["tokens per day"].Left)
		assert.Positive(t, b["tokens per day"].ReturnsInMs)
		assert.LessOrEqual(t, b["tokens per day"].ReturnsInMs, int64(24*60*60*1000))
		assert.Equal(t, untouched, left(routertest.Dial(t, s.router, routertest.Token("bob"))), "another user has a budget of their own")
	})
}

// left returns the budget of the user of a page, by the names of the limits.
func left(page *routertest.Conn) map[string]BudgetLimit {
	all := map[string]BudgetLimit{}
	for _, l := range routertest.Call[Budget](page, GetBudget{}).Limits {
		all[l.Name] = l
	}
	return all
}

func TestBudget_ScriptsAreFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestServer(t, "-tokens-per-minute=200", "-tokens-per-day=200")
		ann := s.open(t, "ann")
		ann.send("1", "chat", "m", `{"items":1000,"everyMs":0}`)
		assert.Equal(t, items("w", 1000), ann.read("1").text)
		assert.EqualValues(t, 200, left(routertest.Dial(t, s.router, routertest.Token("ann")))["tokens per day"].Left)
	})
}
