package runs

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/run/observe"
)

// A stopCause cancels a producer that is to stop.
type stopCause struct{ by string }

// Error returns a text for people.
func (s *stopCause) Error() string { return "the run was stopped" }

// An ExhaustedError ends a run that has no more tokens, or that is too large.
type ExhaustedError struct{ Public *errors.Error }

// Error returns the text of the public part.
func (e *ExhaustedError) Error() string { return e.Public.Error() }

// Unwrap returns the public part.
func (e *ExhaustedError) Unwrap() error { return e.Public }

//nolint:gochecknoglobals // constants
var (
	errTakenOver = &errors.Error{Code: errors.Unavailable, Message: "the run was interrupted"}
	errShutdown  = &errors.Error{Code: errors.Unavailable, Message: "the server is shutting down"}
	errReturned  = &errors.Error{Code: errors.FailedPrecondition, Message: "the producer of the run has returned"}
	errExpired   = &errors.Error{Code: errors.DeadlineExceeded, Message: "the run has taken too long"}
	interrupted  = payload(errTakenOver)
	stopped      = payload(&errors.Error{Code: errors.Canceled, Message: "the run was stopped"})
)

// payload returns what readers may see of an error. Details that cannot be encoded are left out.
func payload(e *errors.Error) *protocol.ErrorPayload {
	p := failure.Payload(e)
	if text, err := jsonv2.Marshal(e.Details); err == nil && len(text) > len(`{}`) && text[0] == '{' {
		p.Details = jsonv2.Value(text)
	}
	return &p
}

// returned handles that the producer has returned an error, or nil.
func (o *Owned) returned(err error) {
	end, inTime := endOf(context.Cause(o.producing), err), false
	o.handle(func(time.Time) error { inTime = o.state.returned(end); return nil })
	if inTime && end.State == Failed && end.Error.Code == errors.Internal {
		o.runs.log("the producer has failed", &o.rec.Record, err)
	}
}

// giveUp ends a run whose producer has not returned.
func (o *Owned) giveUp() {
	cause := context.Cause(o.producing)
	o.runs.log("the producer has not returned after it was canceled; the run ends without it", &o.rec.Record, cause)
	o.returned(cause)
}

// endOf returns how a run ends whose producer has returned an error, or nil, without the number of items. A cause
// for which it was canceled, or nil, counts more than what it returns.
func endOf(cause, err error) End {
	end := End{State: Completed, At: time.Now().UTC()}
	if cause != nil {
		err = cause
	}
	if err == nil {
		return end
	}
	end.Error = payload(publicPart(err))
	stop, isStop := errors.AsType[*stopCause](err)
	_, isExhausted := errors.AsType[*ExhaustedError](err)
	switch {
	case isStop:
		end.State, end.By, end.Error = Stopped, stop.by, stopped
	case isExhausted:
		end.State = Exhausted
	case errors.Is(err, errExpired):
		end.State = Expired
	case errors.Is(err, errLeaseLost), errors.Is(err, errShutdown), errors.Is(err, errTakenOver):
		end.State, end.Error = Interrupted, interrupted
	default:
		end.State = Failed
	}
	return end
}

// publicPart returns what readers may know of an error.
func publicPart(err error) *errors.Error {
	if e, ok := errors.AsType[*errors.Error](err); ok {
		return failure.WithoutAnswer(e)
	}
	return &errors.Error{Code: errors.Internal, Err: err}
}

// finish stores the end of the run, and deletes its lease.
func (o *Owned) finish() {
	o.announced.Wait()
	if !o.isLost() { // meanwhile; the node that has the run settles the budget
		o.storeEnd()
	}
	o.handle(o.state.finished)
	o.dropLease()
	o.cancel(errReturned)
}

// storeEnd settles the budget, and stores the end in the record.
func (o *Owned) storeEnd() {
	o.storing <- struct{}{}
	defer func() { <-o.storing }()
	r, end := o.runs, o.state.end // which does not change any more
	if o.settle != nil {
		if err := retry(r.ctx, o.settle); err != nil {
			r.log("the budget of a run is not settled; a node that is asked about the run does it", &o.rec.Record, err)
			return
		}
	}
	o.rec.State, o.rec.End, o.rec.Settled = o.rec.State.to(end.State), end, true
	if err := o.replaceOlder(r.ctx); err != nil && errors.CodeOf(err) != errors.Aborted {
		r.log("the end of a run is not stored; a node that is asked about the run does it", &o.rec.Record, err)
		return
	}
	r.config.Changed(o.rec.Record)
	r.config.Observe(observe.Event{Kind: observe.Ended, State: string(end.State), Duration: time.Since(o.began)})
}
