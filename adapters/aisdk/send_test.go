package aisdk_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/aisdk"
	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

func regenerate(id, chat, message string, s script) string {
	return strings.Replace(submit(id, chat, message, s), "submit-message", "regenerate-message", 1)
}

// counting counts the runs that follow starts.
func counting(runs *atomic.Int32) func(context.Context, *aisdk.Request, *aisdk.Output) error {
	return func(ctx context.Context, req *aisdk.Request, out *aisdk.Output) error {
		runs.Add(1)
		return follow(ctx, req, out)
	}
}

// TestSend_AnotherMessageIsRefused while a run is active.
func TestSend_AnotherMessageIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		all := nodes(t, 2, aisdk.Options{Answer: counting(&runs)})
		p, other := all[0].open(t, "ann"), all[1].open(t, "ann")
		p.write(submit("1", "ann-1", "m1", script{Items: 100, EveryMs: 10, FailAfter: -1, Text: "w"}))
		assert.Equal(t, "start", p.next().Type)
		for _, text := range []string{submit("2", "ann-1", "m2", script{}), regenerate("2", "ann-1", "m1", script{})} {
			other.write(text)
			a := other.read("2")
			assert.Empty(t, a.chunks)
			assert.Equal(t, "error", a.end.Type)
			assert.Equal(t, "another run is active", a.end.ErrorText)
		}
		assert.Equal(t, text(100), p.rest("1").text)
		assert.EqualValues(t, 1, runs.Load())
	})
}

// TestSend_SameMessageIsOneRun from 8 pages on two nodes at once, and again after its end.
func TestSend_SameMessageIsOneRun(t *testing.T) {
	for _, frame := range []func(id, chat, message string, s script) string{submit, regenerate} {
		synctest.Test(t, func(t *testing.T) {
			var runs atomic.Int32
			all := nodes(t, 2, aisdk.Options{Answer: counting(&runs)})
			s := script{Items: 20, EveryMs: 10, FailAfter: -1, Text: "w"}
			var group sync.WaitGroup
			for i := range 8 {
				p := all[i%2].open(t, "ann")
				group.Go(func() {
					p.write(frame("1", "ann-1", "m", s))
					a := p.read("1")
					assert.Equal(t, text(20), a.text)
					assert.Equal(t, "end", a.end.Type)
				})
			}
			group.Wait()
			assert.EqualValues(t, 1, runs.Load())
		})
	}
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		p := nodes(t, 1, aisdk.Options{Answer: counting(&runs)})[0].open(t, "ann")
		s := script{Items: 20, EveryMs: 10, FailAfter: -1, Text: "w"}
		ids := map[any]bool{}
		send := func(frame string) {
			p.write(frame)
			a := p.read("1")
			require.Equal(t, text(20), a.text)
			ids[a.chunks[0]["messageId"]] = true
		}
		send(submit("1", "ann-1", "m", s))
		send(submit("1", "ann-1", "m", s))
		assert.Len(t, ids, 1, "it is the same run, even after its end")
		send(strings.Replace(submit("1", "ann-1", "m", s), "hello", "good morning", 1))
		assert.Len(t, ids, 2, "the user has edited the message")
		for range 3 {
			send(regenerate("1", "ann-1", "m", s))
		}
		assert.Len(t, ids, 5, "each regeneration is another run")
		assert.EqualValues(t, 5, runs.Load())
	})
}

// TestSend_AfterAnEditAndBackIsAnotherRun because the chat went on after the first answer.
func TestSend_AfterAnEditAndBackIsAnotherRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		all := nodes(t, 2, aisdk.Options{Answer: counting(&runs)})
		first, second := all[0].open(t, "ann"), all[1].open(t, "ann")
		s := script{Items: 2, EveryMs: 10, FailAfter: -1, Text: "w"}
		question := submit("1", "ann-1", "m", s)
		edited := strings.Replace(question, "hello", "good morning", 1)
		for i, frame := range []string{question, edited, question, edited, question} {
			for _, p := range []*page{first, second, first} { // all of them receive the same run
				p.write(frame)
				a := p.read("1")
				assert.Equal(t, text(2), a.text)
				assert.Equal(t, "end", a.end.Type)
			}
			assert.EqualValues(t, i+1, runs.Load())
		}
	})
}

// TestSend_FailedAnswerIsNotRepeated but asked for again, once for pages that send at the same time.
func TestSend_FailedAnswerIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		all := nodes(t, 2, aisdk.Options{Answer: func(ctx context.Context, req *aisdk.Request, out *aisdk.Output) error {
			if runs.Add(1) < 3 {
				return errors.Errorf(errors.Unavailable, "the model has failed")
			}
			return follow(ctx, req, out)
		}})
		frame := submit("1", "ann-1", "m", script{Items: 20, EveryMs: 10, FailAfter: -1, Text: "w"})
		p := all[0].open(t, "ann")
		for want := range 2 {
			p.write(frame)
			assert.Equal(t, "error", p.read("1").end.Type)
			assert.EqualValues(t, want+1, runs.Load())
		}
		var group sync.WaitGroup
		for i := range 6 {
			p := all[i%2].open(t, "ann")
			group.Go(func() {
				p.write(frame)
				assert.Equal(t, text(20), p.read("1").text)
			})
		}
		group.Wait()
		assert.EqualValues(t, 3, runs.Load())
	})
}

// TestUsers_OfOthersSeeNoRun and start none.
func TestUsers_OfOthersSeeNoRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		all := nodes(t, 2, aisdk.Options{Answer: counting(&runs)})
		p, other := all[0].open(t, "ann"), all[1].open(t, "bob")
		p.write(submit("1", "ann-1", "m", script{Items: 10, EveryMs: 10, FailAfter: -1, Text: "w"}))
		assert.Equal(t, "start", p.next().Type)
		for _, chat := range []string{"ann-1", "ann-2", "bob-1"} {
			other.write(resume("r", chat))
			a := other.read("r")
			assert.Equal(t, "no-active", a.end.Type)
			assert.Empty(t, a.chunks)
		}
		other.write(submit("2", "ann-1", "m", script{}))
		a := other.read("2")
		assert.Equal(t, "error", a.end.Type)
		assert.Equal(t, "not yours", a.end.ErrorText)
		assert.Equal(t, text(10), p.rest("1").text)
		assert.EqualValues(t, 1, runs.Load())
	})
}

// TestLimits_AnswerTheRequest that exceeds them, and no other.
func TestLimits_AnswerTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var exceeded []string
		limiter := memory.NewLimiter(limit.Per(1, time.Minute).Burst(2))
		n := nodes(t, 1, aisdk.Options{
			Ingress: ratelimit.New(limiter, &ratelimit.Options{Name: "starts", Cost: func(in router.IngressContext) int64 {
				assert.Positive(t, in.Size)
				assert.Equal(t, "ann", in.Identity.UserID)
				if in.Type == string(aisdk.ActionResume) {
					return 0
				}
				return 1
			}}),
			Limits: aisdk.Limits{Requests: 2},
			OnLimitExceeded: func(a aisdk.Access, l router.LimitExceeded) {
				exceeded = append(exceeded, fmt.Sprint(a.Action, a.Chat, l.Kind, l.Limit, l.Option))
			},
		})[0]
		p := n.open(t, "ann")
		p.write(submit("1", "ann-1", "m", script{Items: 100, EveryMs: 10, FailAfter: -1, Text: "w"}))
		p.write(submit("2", "ann-2", "m", script{Items: 100, EveryMs: 10, FailAfter: -1, Text: "w"}))
		p.write(resume("3", "ann-1"))
		answers := p.readAll("1", "2", "3")
		assert.Equal(t, "error", answers["3"].end.Type)
		assert.Equal(t, "the limit is exceeded", answers["3"].end.ErrorText)
		assert.Equal(t, text(100), answers["1"].text)
		assert.Equal(t, text(100), answers["2"].text)
		p.write(submit("4", "ann-4", "m", script{}))
		a := p.read("4")
		assert.Equal(t, "error", a.end.Type)
		assert.Equal(t, "the limit is exceeded (starts); retry in 59s", a.end.ErrorText)
		p.write(resume("5", "ann-1"))
		assert.Equal(t, text(100), p.read("5").text)
		assert.Equal(t, []string{"resumeann-1in_flight2aisdk.Limits.Requests", "sendann-4rate2"}, exceeded)
	})
}

// TestStart_TakesTheBudget and the page learns that it is exhausted, and when it returns.
func TestStart_TakesTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := memory.NewLimiter(limit.Per(60, time.Minute))
		p := nodes(t, 1, aisdk.Options{Start: func(_ context.Context, req *aisdk.Request) (*run.StartOptions, error) {
			if req.Message.Text() != "hello" {
				return nil, errors.InvalidField("messages", "must say hello")
			}
			return &run.StartOptions{Budget: &run.Budget{Keys: []limit.Key{{"ann"}}, Prompt: 10, Slice: 10}}, nil
		}}, func(o *run.Options[aisdk.Chunk]) { o.Budget = limit.NewMeter(limit.MaxLease, bucket) })[0].open(t, "ann")
		p.write(strings.Replace(submit("1", "ann-1", "m", script{}), "hello", "bye", 1))
		a := p.read("1")
		assert.Equal(t, "error", a.end.Type)
		assert.Equal(t, "messages must say hello", a.end.ErrorText)
		p.write(submit("1", "ann-1", "m", script{Items: 1000, FailAfter: -1, Text: "w"}))
		a = p.read("1")
		assert.Equal(t, "error", a.end.Type)
		assert.Equal(t, "the budget is exhausted; retry in 1s", a.end.ErrorText)
		assert.Equal(t, []string{"text-end", "finish-step"}, a.types[len(a.types)-2:])
		assert.Equal(t, text(47), a.text, "and three chunks before it")
		p.write(submit("2", "ann-1", "m2", script{Items: 1}))
		a = p.read("2")
		assert.Empty(t, a.chunks)
		assert.Equal(t, "the budget is exhausted; retry in 20s", a.end.ErrorText)
	})
}
