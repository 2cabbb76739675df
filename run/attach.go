package run

import (
	"context"
	"iter"

	"github.com/penstock-go/penstock/internal/runmessages"
	"github.com/penstock-go/penstock/internal/runs"
	"github.com/penstock-go/penstock/router"
)

// From is where a reader begins. The zero From is the first item of the latest run.
type From struct {
	Run  string // the latest one of the topic if ""
	Item uint64 // the number of the first item
}

// A Part is an item, or several neighbors that Options.Merge has made one. Its numbers are those from Number
// to Number + max(Count, 1) - 1.
type Part[Item any] = runmessages.Part[Item]

// A Reader reads a run. It is not safe for concurrent use.
type Reader[Item router.Message] struct {
	rs     *Runs[Item]
	reader *runs.Reader
	info   Info
	end    *runs.End // nil until Parts is at its end
	next   uint64
}

// Attach begins to read a run of a topic. The caller must call Close. If there is no such run, or if
// Options.Retain has passed since its end, the error is NOT_FOUND.
func (rs *Runs[Item]) Attach(ctx context.Context, topic string, from From) (*Reader[Item], error) {
	if err := rs.check(topic); err != nil {
		return nil, err
	}
	r, err := rs.runs.Attach(ctx, topic, from.Run)
	if err != nil {
		return nil, err
	}
	rec := r.Record()
	return &Reader[Item]{rs: rs, reader: r, info: infoOf(&rec), next: from.Item}, nil
}

// Find returns the run of a topic with an ID, or the latest one if id is "". If there is none, the error
// is NOT_FOUND. It ends a run whose node has died.
func (rs *Runs[Item]) Find(ctx context.Context, topic, id string) (Info, error) {
	if err := rs.check(topic); err != nil {
		return Info{}, err
	}
	rec, err := rs.runs.Find(ctx, topic, id)
	return infoOf(&rec), err
}

// Stop ends a run of a topic, or the latest one if id is "", on whatever node it is, and returns when its end
// is stored. by is for Info.StoppedBy. It returns a run that has ended as it is. The items that
// were emitted stay.
func (rs *Runs[Item]) Stop(ctx context.Context, topic, id, by string) (Info, error) {
	if err := rs.check(topic); err != nil {
		return Info{}, err
	}
	rec, err := rs.runs.Stop(ctx, topic, id, by)
	return infoOf(&rec), err
}

// Close ends the reading.
func (r *Reader[Item]) Close() { r.reader.Close() }

// Info describes the run: how it has ended, when Parts is at its end.
func (r *Reader[Item]) Info() Info { return r.info }

// Parts returns the items that have not been read yet, until the run has ended; then Info has the end. It yields
// an error only if ctx is done or the router is shut down. A reader that is slow does not delay the
// run or other readers: what it has not read is merged.
func (r *Reader[Item]) Parts(ctx context.Context) iter.Seq2[Part[Item], error] {
	return func(yield func(Part[Item], error) bool) {
		for {
			items, end, err := r.reader.Next(ctx, r.next)
			if err != nil {
				yield(Part[Item]{}, err)
				return
			}
			if end != nil {
				r.end = end
				r.info.setEnd(end)
				return
			}
			for _, part := range r.rs.merge(r.next, items) {
				r.next = part.Next()
				if !yield(part, nil) {
					return
				}
			}
		}
	}
}

// Stored returns the items that have not been read yet, as far as this node has received them, and does not wait for
// others. When it has returned the last items of a run that has ended, Info has the end.
func (r *Reader[Item]) Stored(ctx context.Context) (parts []Part[Item], err error) {
	for {
		items, end, err := r.reader.Stored(ctx, r.next)
		switch {
		case err != nil:
			return nil, err
		case end != nil:
			r.end = end
			r.info.setEnd(end)
			return parts, nil
		case len(items) == 0:
			return parts, nil
		}
		parts = append(parts, r.rs.merge(r.next, items)...)
		r.next += uint64(len(items))
	}
}

// merge returns items, which begin with a number, as few parts. It merges halves, so that the copies of merged
// items cost n log n, and not the square.
func (rs *Runs[Item]) merge(first uint64, items []any) []Part[Item] {
	if len(items) == 1 {
		item, _ := items[0].(Item)
		return []Part[Item]{{Number: first, Item: &item}}
	}
	half := len(items) / 2
	left, right := rs.merge(first, items[:half]), rs.merge(first+uint64(half), items[half:]) //nolint:gosec // positive
	if rs.opts.Merge == nil {
		return append(left, right...)
	}
	last, next := &left[len(left)-1], &right[0]
	if merged, ok := rs.opts.Merge(*last.Item, *next.Item); ok {
		last.Item, last.Count = &merged, max(last.Count, 1)+max(next.Count, 1)
		right = right[1:]
	}
	return append(left, right...)
}
