package runs

import (
	"context"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/failure"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/protocol"
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

// endOf returns how a run ends whose producer has returned an error, or nil, without the number of items. A cause
// for which it was canceled counts more than what it returns.
func (o *Owned) endOf(err error) End {
	end := End{State: Completed, At: time.Now().UTC()}
	if cause := context.Cause(o.producing); cause != nil {
		err = cause
	}
	if err == nil {
		return end
	}
	end.Error = payload(publicPart(err))
	if stop, ok := errors.AsType[*stopCause](err); ok {
		end.State, end.By, end.Error = Stopped, stop.by, stopped
		return end
	}
	if _, ok := errors.AsType[*ExhaustedError](err); ok {
		end.State = Exhausted
		return end
	}
	switch {
	case errors.Is(err, errExpired):
		end.State = Expired
	case errors.Is(err, errLeaseLost), errors.Is(err, errShutdown), errors.Is(err, errTakenOver):
		end.State, end.Error = Interrupted, interrupted
	default:
		end.State = Failed
		if end.Error.Code == errors.Internal {
			o.runs.log("the producer has failed", &o.rec.Record, err)
		}
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
