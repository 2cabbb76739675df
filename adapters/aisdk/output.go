package aisdk

import (
	"fmt"
	"sync"

	"github.com/penstock-go/penstock/run"
)

// An Output receives the chunks of an answer. Emit, Text, Reasoning and Finish are safe for
// concurrent use; the other methods are those of [run.Output], whose Emit is hidden because it does
// not check the order.
type Output struct {
	*run.Output[Chunk]

	transient func(Chunk) // sends a chunk that is not stored

	mu    sync.Mutex
	order *order
	part  part  // that Text or Reasoning has opened
	parts int   // how many they have opened
	err   error // of the first chunk that could not be emitted
}

// A part is a text or a reasoning. The zero part is none.
type part struct{ kind, id string }

// NewOutput returns an output for a run that [Handler] has not started. items are the chunks that
// the run has, if it is resumed (see Options.Resume of package run).
func (h *Handler) NewOutput(out *run.Output[Chunk], items ...Chunk) *Output {
	o := &Output{Output: out, order: newOrder(), transient: func(c Chunk) { h.sendTransient(out.Run().ID, c) }}
	for i := range items {
		_ = o.order.add(&items[i]) // it was checked when it was emitted
	}
	o.parts = len(items) // so that the IDs of parts are new
	return o
}

// Emit adds a chunk to the answer. It waits as [run.Output.Emit] does. A chunk that the AI SDK
// would not accept is not sent: one whose type is unknown, that is not in order, or that is without
// a required field. The error of the first one also ends the run if Options.Answer returns nil. A
// part that Text or Reasoning has opened is closed before a chunk that is not transient.
func (o *Output) Emit(c Chunk) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !c.Transient {
		if err := o.closePartLocked(); err != nil {
			return err
		}
	}
	return o.emitLocked(c)
}

func (o *Output) emitLocked(c Chunk) error {
	if c.Type == "start" && c.MessageID == "" {
		c.MessageID = o.Run().ID
	}
	if err := o.order.add(&c); err != nil {
		o.failLocked(err)
		return err
	}
	if c.Transient {
		o.transient(c)
		return nil
	}
	if err := o.Output.Emit(c); err != nil {
		o.failLocked(err)
		return err
	}
	return nil
}

func (o *Output) failLocked(err error) {
	if o.err == nil {
		o.err = err
	}
}

// Text continues the text of the answer. It first emits the start of the answer and of a text, if
// there is none.
func (o *Output) Text(delta string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	id, err := o.openPartLocked("text", TextStart)
	if err != nil {
		return err
	}
	return o.emitLocked(TextDelta(id, delta))
}

// Reasoning is Text for the reasoning of a model.
func (o *Output) Reasoning(delta string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	id, err := o.openPartLocked("reasoning", ReasoningStart)
	if err != nil {
		return err
	}
	return o.emitLocked(ReasoningDelta(id, delta))
}

// openPartLocked returns the ID of the open part if it is of a kind, or of a new one.
func (o *Output) openPartLocked(kind string, start func(id string) Chunk) (id string, err error) {
	if o.part.kind == kind {
		return o.part.id, nil
	}
	if err := o.closePartLocked(); err != nil {
		return "", err
	}
	if err := o.startLocked(); err != nil {
		return "", err
	}
	o.parts++
	id = fmt.Sprint(kind, "-", o.parts)
	if err := o.emitLocked(start(id)); err != nil {
		return "", err
	}
	o.part = part{kind, id}
	return id, nil
}

// closePartLocked closes the part that is open, if there is one.
func (o *Output) closePartLocked() error {
	open := o.part
	o.part = part{}
	switch open.kind {
	case "text":
		return o.emitLocked(TextEnd(open.id))
	case "reasoning":
		return o.emitLocked(ReasoningEnd(open.id))
	default:
		return nil
	}
}

// startLocked emits the start of the answer unless it has one.
func (o *Output) startLocked() error {
	if o.order.started {
		return nil
	}
	return o.emitLocked(Start("", nil))
}

// Finish closes the parts and the step that are open, and ends the answer. It does nothing if the
// answer has ended. [Handler] calls it with [FinishStop] when Options.Answer has returned nil.
func (o *Output) Finish(reason FinishReason) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return o.err
	case o.order.finished:
		return nil
	}
	o.part = part{} // it is closed with the others
	if err := o.startLocked(); err != nil {
		return err
	}
	for _, c := range o.order.closing("the answer has ended") {
		if err := o.emitLocked(c); err != nil {
			return err
		}
	}
	return o.emitLocked(Finish(reason))
}
