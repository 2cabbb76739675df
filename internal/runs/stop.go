package runs

import (
	"context"
	"math"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/run/observe"
)

// Stop ends a run, or the latest one if id is "", and returns its record when the end is in the log. It appends the
// request to the log, where the owner finds it, whatever was lost between the nodes. A run that has ended
// stays as it is.
func (r *Runs) Stop(ctx context.Context, topic, id, by string) (Record, error) {
	began := time.Now()
	for {
		rec, err := r.Find(ctx, topic, id)
		if err != nil || rec.End != nil {
			return rec, err
		}
		end, err := r.stop(ctx, &rec, by)
		switch {
		case err == nil:
			rec.State, rec.End = end.State, end
			r.config.Observe(observe.Event{Kind: observe.Stopped, Duration: time.Since(began)})
			return rec, nil
		case errors.CodeOf(err) != errors.Aborted: // another node has taken over
			return rec, err
		}
	}
}

// stop requests the end of an active run, and waits for it.
func (r *Runs) stop(ctx context.Context, rec *Record, by string) (*End, error) {
	v := r.acquire(rec.Topic, rec.ID, true)
	defer v.release(true)
	v.startWatching()
	v.load(false)
	_, err := r.append(ctx, rec, &entry{Fence: rec.Fence, Stop: &stopRequest{By: by}}, "")
	if err != nil && errors.CodeOf(err) != errors.FailedPrecondition { // closed, so the end is there
		return nil, err
	}
	_, end, err := (&Reader{view: v}).Next(ctx, math.MaxUint64)
	return end, err
}
