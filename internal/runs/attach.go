package runs

import (
	"context"

	"github.com/penstock-go/penstock/run/observe"
)

// A Reader reads a run. It is not safe for concurrent use.
type Reader struct {
	view   *view
	record Record
}

// Attach begins to read the run of a topic with an ID, or the latest one if id is "". The caller must call Close.
func (r *Runs) Attach(ctx context.Context, topic, id string) (*Reader, error) {
	rec, err := r.Find(ctx, topic, id)
	if err != nil {
		return nil, err
	}
	v := r.acquire(topic, rec.ID, true)
	v.load(true)
	v.startWatching()
	r.config.Observe(observe.Event{Kind: observe.Attached})
	return &Reader{view: v, record: rec}, nil
}

// Close ends the reading.
func (r *Reader) Close() {
	r.view.runs.config.Observe(observe.Event{Kind: observe.Detached})
	r.view.release(true)
}

// Record returns the record of the run, as of when Attach was called.
func (r *Reader) Record() Record { return r.record }

// Next returns the items from a number on, at least one, or the end if there are no more. It waits for them.
func (r *Reader) Next(ctx context.Context, from uint64) (items []any, end *End, err error) {
	err = r.view.await(ctx, func() bool {
		items, end = r.view.nextLocked(from)
		return len(items) > 0 || end != nil
	})
	return items, end, err
}

// Stored returns the items from a number on that this node has, or none, and the end if there are no more. It waits only
// while the log is read.
func (r *Reader) Stored(ctx context.Context, from uint64) (items []any, end *End, err error) {
	err = r.view.await(ctx, func() bool {
		items, end = r.view.nextLocked(from)
		return len(items) > 0 || r.view.cursor.IsLive()
	})
	return items, end, err
}
