package inspect

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock-go/penstock/errors"
)

// This file starts, reads and stops traces on all nodes.

// startTrace starts a trace on all nodes. A node that joins later does not record.
func (i *Inspector) startTrace(ctx context.Context, request traceRequest) (any, error) {
	s := traceSpec{rand.Text(), request}
	if s.Payloads && i.opts.Redact == nil {
		return nil, errors.Errorf(errors.Unimplemented, "payloads cannot be traced; the application must set inspect.Options.Redact")
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	_, states, err := gather[bool](ctx, i, askStartTrace, s)
	return struct {
		changed

		ID string `json:"id"`
	}{changed{states}, s.ID}, err
}

func (i *Inspector) localStartTrace(_ context.Context, s traceSpec) (bool, error) {
	if err := s.check(); err != nil {
		return false, err
	}
	d := time.Duration(s.Seconds) * time.Second
	t := &trace{spec: s, until: time.Now().Add(d)}
	err := i.changeRecorders(func(r recorders) (recorders, error) {
		if len(r.traces) >= maxTraces {
			return r, errors.Errorf(errors.ResourceExhausted, "there are %d traces already; stop one", maxTraces)
		}
		t.timer = time.AfterFunc(d, func() { i.endTrace(s.ID) })
		r.traces = append(r.traces, t)
		return r, nil
	})
	return err == nil, err
}

// endTrace removes a trace, and reports whether it was there.
func (i *Inspector) endTrace(id string) (found bool) {
	_ = i.changeRecorders(func(r recorders) (recorders, error) { // never fails
		r.traces = slices.DeleteFunc(r.traces, func(t *trace) bool {
			if t.spec.ID != id {
				return false
			}
			found = true
			t.timer.Stop()
			return true
		})
		return r, nil
	})
	return found
}

// traceQuery reads a trace, or stops it.
type traceQuery struct {
	ID    string            `json:"id"`
	After map[string]uint64 `json:"after,omitempty"` // numbers of the entries that were read last, by node
}

// A traceAnswer is what one node has recorded.
type traceAnswer struct {
	Entries []traceEntry `json:"entries"`
	Skipped int64        `json:"skipped"`
	Running bool         `json:"running"`
}

func (i *Inspector) localTrace(_ context.Context, q traceQuery) (a traceAnswer, err error) {
	if r := i.recorders.Load(); r != nil {
		for _, t := range r.traces {
			if t.spec.ID == q.ID {
				a.Running = true
				a.Entries, a.Skipped = t.after(q.After[i.router.NodeID()])
			}
		}
	}
	return a, nil
}

// A traceResult is what all nodes have recorded since the last time.
type traceResult struct {
	Nodes   nodeStates        `json:"nodes"`
	Rows    []traceEntry      `json:"rows"` // at most 100 of each node
	After   map[string]uint64 `json:"after"`
	Skipped int64             `json:"skipped"` // because there were more than 100 in a second
	Running bool              `json:"running"` // on any node
}

// dropPayloads is called for an operator who may not see them: another one has started the trace.
func (r *traceResult) dropPayloads() {
	for n := range r.Rows {
		r.Rows[n].Payload = ""
	}
}

// readTrace returns a traceResult.
func (i *Inspector) readTrace(ctx context.Context, q traceQuery) (any, error) {
	answers, states, err := gather[traceAnswer](ctx, i, askTrace, q)
	if err != nil {
		return nil, err
	}
	all := &traceResult{Nodes: states, Rows: []traceEntry{}, After: map[string]uint64{}}
	maps.Copy(all.After, q.After)
	for _, a := range answers {
		all.Rows = append(all.Rows, a.Result.Entries...)
		all.Skipped += a.Result.Skipped
		all.Running = all.Running || a.Result.Running
		if n := len(a.Result.Entries); n > 0 {
			all.After[a.Node] = a.Result.Entries[n-1].Number
		}
	}
	slices.SortStableFunc(all.Rows, func(a, b traceEntry) int { return a.Time.Compare(b.Time) })
	return all, nil
}

func (i *Inspector) localStopTrace(_ context.Context, q traceQuery) (bool, error) {
	return i.endTrace(q.ID), nil
}

func (i *Inspector) stopTrace(ctx context.Context, q byID) (any, error) {
	_, states, err := gather[bool](ctx, i, askStopTrace, traceQuery{ID: q.ID})
	return changed{states}, err
}

// truncate returns at most n bytes of a text, and only valid UTF-8.
func truncate(s string, n int) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
