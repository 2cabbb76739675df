//go:build !js

package runs

import (
	"context"
	"iter"
	"time"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/internal/runmessages"
)

// A Part is an item, or several neighbors that are merged into one. Its numbers are those from
// Number to Number + max(Count, 1) - 1.
type Part[Item any] = runmessages.Part[Item]

// Options say what of a run is read. The zero value is the latest run of the topic from its first
// item.
type Options[Item client.Message] struct {
	Run  string // the ID; the latest run of the topic if ""
	From uint64 // the number of the first item

	// Merge returns one item for two neighbors, or false if they must stay two, as
	// run.Options.Merge does. Each part then has everything from Options.From on, as far as it can
	// be merged: it replaces the part before if that has the same number. After an interruption,
	// only what is new is requested. If nil, each part has only what is new.
	Merge func(first, second Item) (merged Item, ok bool)
}

// A Reader reads a run. It is not safe for concurrent use.
type Reader[Item client.Message] struct {
	client *client.Client
	topic  string
	run    string
	next   uint64
	merge  func(first, second Item) (Item, bool)
	last   *Part[Item] // if parts are merged
	end    *End
}

// An End says how a run has ended.
type End struct {
	Run       string // the ID
	State     string // one of those of package run, such as "completed"
	Items     uint64 // how many the run has
	StoppedBy string // the ID of the user who has stopped it
	Err       error  // why the run is not complete, or nil
}

// Attach returns a reader of a run of a topic. Nothing is sent before [Reader.Parts] is called. If
// opts is nil, the defaults are used.
func Attach[Item client.Message](c *client.Client, topic string, opts *Options[Item]) *Reader[Item] {
	if opts == nil {
		opts = &Options[Item]{}
	}
	return &Reader[Item]{client: c, topic: topic, run: opts.Run, next: opts.From, merge: opts.Merge}
}

// Run returns the ID of the run. It is "" before the first part if Options.Run is.
func (r *Reader[Item]) Run() string { return r.run }

// Next returns the number of the first item that the loop has not received. Another reader
// continues there: see Options.From.
func (r *Reader[Item]) Next() uint64 { return r.next }

// End returns how the run has ended. ok is false before Parts has returned all items.
func (r *Reader[Item]) End() (end End, ok bool) {
	if r.end == nil {
		return End{}, false
	}
	return *r.end, true
}

// Parts returns the items that have not been received yet, each once and in order, until the run
// has ended. After a lost connection, a restart of the server, or an error that does not last, it
// attaches again behind the last item. Leaving the loop detaches from the run and does not stop it;
// another call of Parts continues. The server sends at most 64 parts that the loop has not
// received.
//
// An error is the last element: NOT_FOUND if there is no such run, or the client may not read it;
// another error of the server that lasts; that of ctx; [client.ErrClosed]. If the run is not
// complete, that is no error here: End has the reason.
func (r *Reader[Item]) Parts(ctx context.Context) iter.Seq2[Part[Item], error] {
	return func(yield func(Part[Item], error) bool) {
		failures := 0
		for r.end == nil {
			attached, left, err := r.attach(ctx, yield)
			if attached {
				failures = 0
			}
			if err != nil {
				err = beforeAttempt(ctx, r.client, err, failures)
				failures++
			}
			if err != nil {
				yield(Part[Item]{}, err)
				return
			}
			if left {
				return
			}
		}
	}
}

// attach passes on the parts of one stream. It reports whether the server has found the run, and
// whether the loop was left. Otherwise, if there is no error, the run has ended.
func (r *Reader[Item]) attach(ctx context.Context, yield func(Part[Item], error) bool) (attached, left bool, err error) {
	var ended runmessages.Ended
	request := runmessages.Attach[Item]{Topic: r.topic, Run: r.run, From: r.next}
	for part, err := range client.StreamReply[Part[Item]](ctx, r.client, request, &ended) {
		if err != nil {
			return attached, false, err
		}
		if part.Item == nil {
			attached, r.run = true, part.Run
			continue
		}
		if part.Number != r.next {
			return attached, false, errors.Errorf(errors.Internal, "the server has sent item %d of the run; it must be %d", part.Number, r.next)
		}
		r.next = part.Next()
		if !yield(r.merged(part), nil) {
			return attached, true, nil
		}
	}
	r.end = endOf(&ended)
	return attached, false, nil
}

// merged returns a part together with what precedes it, if that is possible.
func (r *Reader[Item]) merged(part Part[Item]) Part[Item] {
	if r.merge == nil {
		return part
	}
	if last := r.last; last != nil {
		if item, ok := r.merge(*last.Item, *part.Item); ok {
			part = Part[Item]{Number: last.Number, Count: max(last.Count, 1) + max(part.Count, 1), Item: &item}
		}
	}
	r.last = &part
	return part
}

// Stop ends a run of a topic, and returns how it has ended when that is stored. run is the ID,
// which is required: a stop that is late must not end the next run. A run that has ended stays as
// it is. After a lost connection, Stop asks again. If ctx has no deadline,
// client.Options.CallTimeout applies to each attempt. If there is no such run, or the client may
// not stop it, the error is NOT_FOUND.
func Stop[Item client.Message](ctx context.Context, c *client.Client, topic, run string) (End, error) {
	for failures := 0; ; failures++ {
		ended, err := client.Call[runmessages.Ended](ctx, c, runmessages.Stop[Item]{Topic: topic, Run: run})
		if err == nil {
			return *endOf(&ended), nil
		}
		if errors.CodeOf(err) != errors.DeadlineExceeded {
			err = beforeAttempt(ctx, c, err, failures)
		}
		if err != nil {
			return End{}, err
		}
	}
}

func endOf(e *runmessages.Ended) *End {
	return &End{Run: e.Run, State: e.State, Items: e.Items, StoppedBy: e.By, Err: e.Err()}
}

// beforeAttempt waits before a request is repeated, after a number of failures since the last
// success. It returns an error if repeating it makes no sense.
func beforeAttempt(ctx context.Context, c *client.Client, err error, failures int) error {
	e, ok := errors.AsType[*errors.Error](err)
	switch {
	case ctx.Err() != nil, c.Err() != nil, errors.Is(err, client.ErrClosed), !ok, !e.Retryable():
		return err
	case errors.Is(err, client.ErrOutcomeUnknown) && failures == 0:
		return nil // the client waits before it connects again
	}
	upper := rules.MaxBackoff
	if failures < 20 {
		upper = min(upper, rules.MinBackoff<<failures)
	}
	delay := e.RetryAfter + time.Duration(float64(upper)*random.Float64())
	if rules.Sleep(ctx, delay) != nil {
		return &errors.Error{Code: errors.CodeOf(ctx.Err()), Message: "the client has waited for another attempt", Err: errors.Join(context.Cause(ctx), err)}
	}
	return nil
}
