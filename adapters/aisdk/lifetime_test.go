package aisdk_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/aisdk"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/run"
)

// TestShutdown_WaitsForRuns: pages receive the ends, and then 1012. A page that reads a run of
// another node receives 1012 without an end, and resumes on another node.
func TestShutdown_WaitsForRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := nodes(t, 2, aisdk.Options{})
		quick, slow, idle := all[0].open(t, "ann"), all[0].open(t, "ann"), all[0].open(t, "ann")
		starter, viewer := all[1].open(t, "ann"), all[0].open(t, "ann")
		quick.write(submit("1", "ann-quick", "m", script{Items: 500, EveryMs: 10, FailAfter: -1, Text: "w"}))
		slow.write(submit("1", "ann-slow", "m", long()))
		starter.write(submit("1", "ann-other", "m", long()))
		time.Sleep(time.Second)
		viewer.write(resume("1", "ann-other"))
		began := time.Now()
		var pages sync.WaitGroup
		pages.Go(func() {
			a := quick.read("1")
			assert.Equal(t, text(500), a.text)
			assert.Equal(t, "end", a.end.Type)
			quick.write(submit("2", "ann-quick", "m2", script{}))
			assert.Equal(t, "the server is shutting down", quick.read("2").end.ErrorText)
			assert.EqualValues(t, websocket.StatusServiceRestart, quick.closed())
		})
		pages.Go(func() {
			a := slow.read("1")
			assert.Equal(t, "error", a.end.Type)
			assert.Equal(t, "the run was interrupted", a.end.ErrorText)
			assert.Equal(t, []string{"text-end", "finish-step"}, a.types[len(a.types)-2:])
			assert.EqualValues(t, websocket.StatusServiceRestart, slow.closed())
		})
		pages.Go(func() {
			assert.EqualValues(t, websocket.StatusServiceRestart, idle.closed())
			assert.Less(t, time.Since(began), 13*time.Second, "after the grace time of the runs")
		})
		pages.Go(func() { assert.EqualValues(t, websocket.StatusServiceRestart, viewer.closed()) })
		pages.Go(func() { _ = starter.closed() })
		all[0].shutDown(t)
		viewer = all[1].open(t, "ann")
		viewer.write(resume("2", "ann-other"))
		assert.Equal(t, "start", viewer.next().Type)
		starter.write(abort("1"))
		assert.Equal(t, "end", viewer.rest("2").end.Type)
		all[1].shutDown(t)
		pages.Wait()
	})
}

// TestShutdown_EndsWithItsContext although a client reads nothing.
func TestShutdown_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, 1, aisdk.Options{})[0]
		p := n.open(t, "ann")
		p.write(submit("1", "ann-1", "m", long()))
		assert.Equal(t, "start", p.next().Type)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		_ = n.router.Shutdown(ctx)
		assert.Less(t, time.Since(began), 10*time.Second)
		assert.EqualValues(t, -1, p.closed())
	})
}

// TestSlowClient_ReceivesMergedItems once it reads again.
func TestSlowClient_ReceivesMergedItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, 1, aisdk.Options{})[0]
		p := n.open(t, "ann")
		const items = 2000
		long := strings.Repeat("x", 100)
		p.write(submit("1", "ann-1", "m", script{Items: items, EveryMs: 10, FailAfter: -1, Text: long}))
		assert.Equal(t, "start", p.next().Type)
		time.Sleep(30 * time.Second)
		assert.Equal(t, run.Completed, n.state(t), "the run does not wait")
		a := p.rest("1")
		assert.Equal(t, text(items), strings.ReplaceAll(a.text, long, "w"))
		assert.Equal(t, "end", a.end.Type)
		assert.Less(t, len(a.chunks), 20)
		for _, c := range a.chunks {
			if delta, ok := c["delta"].(string); ok {
				assert.LessOrEqual(t, len(delta), 64<<10)
			}
		}
	})
}

// TestSlowClient_IsDisconnected if it reads nothing, and its run goes on.
func TestSlowClient_IsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, 1, aisdk.Options{PingInterval: 10 * time.Second})[0]
		p := n.open(t, "ann")
		p.write(submit("1", "ann-1", "m", script{Items: 1000, EveryMs: 100, FailAfter: -1, Text: "w"}))
		assert.Equal(t, "start", p.next().Type)
		time.Sleep(time.Minute)
		assert.Equal(t, run.Running, n.state(t))
		assert.EqualValues(t, -1, p.closed(), "without a close frame, which it would not read")
		p = n.open(t, "ann")
		p.write(resume("2", "ann-1"))
		assert.Equal(t, text(1000), p.read("2").text)
	})
}

// TestPing_KeepsSilentConnections open, and disconnects clients that do not answer.
func TestPing_KeepsSilentConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, 1, aisdk.Options{PingInterval: 10 * time.Second, Answer: func(ctx context.Context, _ *aisdk.Request, out *aisdk.Output) error {
			time.Sleep(10 * time.Minute)
			return out.Text("w0 ")
		}}, func(o *run.Options[aisdk.Chunk]) { o.Limits.Duration = time.Hour })[0]
		silent, p := n.open(t, "ann"), n.open(t, "ann")
		p.write(submit("1", "ann-1", "m", script{}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		content := ""
		for !strings.Contains(content, `"end"`) {
			_, data, err := p.ws.Read(ctx)
			require.NoError(t, err)
			content += string(data)
		}
		assert.Contains(t, content, `"w0 "`)
		_, _, err := silent.ws.Read(t.Context())
		require.Error(t, err)
		assert.EqualValues(t, -1, websocket.CloseStatus(err))
	})
}

// TestTransient_ReachesAttachedPages of the node, and no later ones.
func TestTransient_ReachesAttachedPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		emit, done := make(chan struct{}), make(chan struct{})
		all := nodes(t, 2, aisdk.Options{Answer: func(_ context.Context, _ *aisdk.Request, out *aisdk.Output) error {
			progress := aisdk.Data("progress", 7)
			progress.Transient = true
			err := out.Emit(progress)
			assert.ErrorContains(t, err, "before the start")
			return err
		}})
		p := all[0].open(t, "ann")
		p.write(submit("1", "ann-0", "m", script{}))
		assert.Equal(t, "error", p.read("1").end.Type)

		all = nodes(t, 2, aisdk.Options{Answer: func(_ context.Context, _ *aisdk.Request, out *aisdk.Output) error {
			progress := aisdk.Data("progress", 7)
			progress.Transient = true
			err := errors.Join(out.Text("a"), out.Flush())
			<-emit
			err = errors.Join(err, out.Emit(progress), out.Text("b"))
			<-done
			return err
		}})
		starter, tab, far := all[0].open(t, "ann"), all[0].open(t, "ann"), all[1].open(t, "ann")
		starter.write(submit("1", "ann-1", "m", script{}))
		assert.Equal(t, "start", starter.next().Type)
		tab.write(resume("1", "ann-1"))
		assert.Equal(t, "start", tab.next().Type)
		far.write(resume("1", "ann-1"))
		assert.Equal(t, "start", far.next().Type)
		answers := make(chan answer)
		for _, p := range []*page{starter, tab} {
			go func() { answers <- p.rest("1") }()
		}
		time.Sleep(time.Second)
		close(emit)
		time.Sleep(time.Second)
		close(done)
		for range 2 {
			a := <-answers
			assert.Contains(t, a.types, "data-progress")
			assert.Equal(t, "ab", a.text)
		}
		assert.NotContains(t, far.rest("1").types, "data-progress")
		tab.write(resume("2", "ann-1"))
		a := tab.read("2")
		assert.NotContains(t, a.types, "data-progress")
		assert.Equal(t, "ab", a.text)
		assert.Contains(t, a.types, "text-delta")
	})
}

// TestTransient_EmittedAtOnce reaches the page that has sent.
func TestTransient_EmittedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, 1, aisdk.Options{Answer: func(ctx context.Context, _ *aisdk.Request, out *aisdk.Output) error {
			progress := aisdk.Data("progress", 7)
			progress.Transient = true
			if err := errors.Join(out.Emit(aisdk.Start("", nil)), out.Emit(progress)); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}})[0]
		for i := range 50 {
			p := n.open(t, "ann")
			chat := fmt.Sprint("ann-", i)
			p.write(submit("1", chat, "m", script{}))
			for _, want := range []string{"start", "chunk", "chunk"} {
				f := p.next()
				require.Equal(t, want, f.Type)
			}
			p.write(abort("1"))
			a := p.next()
			assert.Equal(t, "abort", chunkType(t, a))
			assert.Equal(t, "end", p.next().Type)
		}
	})
}

// TestPanic_OfTheApplication ends one request.
func TestPanic_OfTheApplication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := nodes(t, 1, aisdk.Options{
			Answer: func(context.Context, *aisdk.Request, *aisdk.Output) error { panic("secret") },
			Authorize: func(_ context.Context, a aisdk.Access) error {
				if a.Chat == "panic" {
					panic("secret")
				}
				return nil
			},
		})[0].open(t, "ann")
		for _, frame := range []string{submit("1", "panic", "m", script{}), resume("1", "panic"), submit("1", "ann-1", "m", script{})} {
			p.write(frame)
			a := p.read("1")
			assert.Equal(t, "error", a.end.Type)
			assert.NotEmpty(t, a.end.ErrorText)
			assert.NotContains(t, a.end.ErrorText, "secret")
		}
	})
}

// TestAnswer_ErrorOfAChunkEndsTheRun even if the application ignores it.
func TestAnswer_ErrorOfAChunkEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := nodes(t, 1, aisdk.Options{Answer: func(_ context.Context, _ *aisdk.Request, out *aisdk.Output) error {
			_ = out.Text("a")
			_ = out.Emit(aisdk.TextDelta("other", "b"))
			return nil
		}})[0].open(t, "ann")
		p.write(submit("1", "ann-1", "m", script{}))
		a := p.read("1")
		assert.Equal(t, []string{"start", "text-start", "text-delta", "text-end"}, a.types)
		assert.Equal(t, "error", a.end.Type)
	})
}
