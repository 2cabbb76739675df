package aisdk_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/aisdk"
	"github.com/penstock-go/penstock/run"
)

// long is a script that does not end.
func long() script { return script{Items: 1e6, EveryMs: 10, FailAfter: -1, Text: "w"} }

// state returns the state of the latest run of the chat "ann-1".
func (n *node) state(t *testing.T) run.State {
	synctest.Wait() // the record has the end after the log has it
	info, err := n.runs.Find(context.WithoutCancel(t.Context()), "answer/ann-1", "")
	require.NoError(t, err)
	return info.State
}

// TestAbort_StopsTheRunForAllTabs of both nodes, within 1.5 s, and whichever of two tabs sends it.
func TestAbort_StopsTheRunForAllTabs(t *testing.T) {
	for _, aborting := range []int{0, 1, 2} {
		synctest.Test(t, func(t *testing.T) {
			all := nodes(t, 2, aisdk.Options{})
			tabs := []*page{all[0].open(t, "ann"), all[1].open(t, "ann"), all[0].open(t, "ann")}
			tabs[0].write(submit("1", "ann-1", "m", long()))
			for i, p := range tabs {
				if i > 0 {
					p.write(resume("1", "ann-1"))
				}
				for f := p.next(); f.Type != "chunk" || chunkType(t, f) != "text-delta"; f = p.next() {
				}
			}
			answers := make(chan frame)
			for _, p := range tabs {
				go func() {
					var f frame
					types := []string{}
					for f.Type != "end" && f.Type != "error" {
						if f = p.next(); f.Type == "chunk" {
							types = append(types, chunkType(t, f))
						}
					}
					assert.Equal(t, []string{"text-end", "finish-step", "abort"}, types[len(types)-3:])
					answers <- f
				}()
			}
			began := time.Now()
			tabs[aborting].write(abort("1"))
			for range tabs {
				assert.Equal(t, "end", (<-answers).Type)
			}
			assert.Less(t, time.Since(began), 1500*time.Millisecond)
			assert.Equal(t, run.Stopped, all[1].state(t))
			tabs[1].write(resume("2", "ann-1"))
			assert.Equal(t, "abort", last(tabs[1].read("2").types), "a later resume")
		})
	}
}

// TestAbort_DetachesViewers ends only what their page receives.
func TestAbort_DetachesViewers(t *testing.T) {
	for name, viewer := range map[string]struct {
		user     string
		detaches bool
	}{"who may not stop": {"viewer", false}, "by option": {"ann", true}} {
		synctest.Test(t, func(t *testing.T) {
			n := nodes(t, 1, aisdk.Options{AbortDetaches: viewer.detaches})[0]
			starter, p := n.open(t, "ann"), n.open(t, viewer.user)
			starter.write(submit("1", "ann-1", "m", script{Items: 100, EveryMs: 10, FailAfter: -1, Text: "w"}))
			assert.Equal(t, "start", starter.next().Type)
			p.write(resume("r", "ann-1"))
			assert.Equal(t, "start", p.next().Type)
			p.write(abort("r"))
			sequence, types := -1, []string{}
			f := p.next()
			for ; f.Type == "chunk"; f = p.next() {
				assert.Equal(t, sequence+1, *f.Sequence)
				sequence++
				types = append(types, chunkType(t, f))
			}
			assert.Equal(t, "end", f.Type)
			assert.Equal(t, "abort", last(types), name)
			a := starter.rest("1")
			assert.Equal(t, "end", a.end.Type)
			assert.Equal(t, text(100), a.text, name)
			assert.Equal(t, run.Completed, n.state(t))
		})
	}
}

// TestAbort_OfWhatHasNotBegun stops the run as soon as it exists, even if the page disconnects at
// once.
func TestAbort_OfWhatHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, 1, aisdk.Options{})[0]
		p := n.open(t, "ann")
		p.write(submit("1", "ann-1", "m", long()))
		p.write(abort("1"))
		require.NoError(t, p.ws.CloseNow())
		time.Sleep(time.Second)
		assert.Equal(t, run.Stopped, n.state(t))
	})
}

func TestAbort_OfUnknownRequestsIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, 1, aisdk.Options{})[0]
		p := n.open(t, "ann")
		p.write(abort("1"))
		p.write(submit("1", "ann-1", "m", script{Items: 10, EveryMs: 10, FailAfter: -1, Text: "w"}))
		assert.Equal(t, text(10), p.read("1").text)
		p.write(abort("1"))
		assert.Equal(t, run.Completed, n.state(t))
	})
}

// TestAbort_NextSendBegins although the page sends it without waiting for the end of the run.
func TestAbort_NextSendBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := nodes(t, 1, aisdk.Options{})[0].open(t, "ann")
		p.write(submit("1", "ann-1", "m1", long()))
		time.Sleep(100 * time.Millisecond)
		p.write(abort("1"))
		p.write(submit("2", "ann-1", "m2", script{Items: 10, EveryMs: 10, FailAfter: -1, Text: "w"}))
		answers := p.readAll("1", "2")
		assert.Equal(t, "abort", last(answers["1"].types))
		assert.Equal(t, "end", answers["2"].end.Type)
		assert.Equal(t, text(10), answers["2"].text)
	})
}
