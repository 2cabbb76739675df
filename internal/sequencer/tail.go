package sequencer

import (
	"context"

	"github.com/penstock-go/penstock/broker"
)

// A Tail reads what a topic stores after a position, and waits for what is published next. One goroutine at a time uses it,
// until it calls Close.
type Tail struct {
	s      *Sequencer
	cursor Cursor        // guarded by the Sequencer's lock
	wake   chan struct{} // has a token when something has happened
}

// Tail begins after a position; the zero Position is before the oldest publication.
func (s *Sequencer) Tail(after broker.Position) *Tail {
	t := &Tail{s: s, cursor: Cursor{at: after}, wake: make(chan struct{}, 1)}
	s.listen(t)
	return t
}

// Next returns the next publications, at least one. It waits for them, and while the store cannot be reached. The error is
// the cause of ctx, FAILED_PRECONDITION if they are lost, or INVALID_ARGUMENT if the topic has not reached the position.
func (t *Tail) Next(ctx context.Context) (next []broker.Publication, err error) {
	s := t.s
	if err := s.AwaitAttached(ctx); err != nil {
		return nil, err
	}
	stored := s.log()
	for {
		err := stored.Run(ctx, &t.cursor, &s.mu, func(page broker.Page) (more bool) {
			next = page.Publications
			return len(next) == 0
		})
		if err != nil || len(next) > 0 {
			return next, err
		}
		select {
		case <-t.wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Close ends what Sequencer.Tail began.
func (t *Tail) Close() { t.s.unlisten(t) }

func (t *Tail) deliverLocked(p broker.Publication) {
	t.cursor.arrive(p.Position)
	t.notifyLocked()
}

func (t *Tail) loseLocked(Loss) {
	t.cursor.lose()
	t.notifyLocked()
}

func (t *Tail) notifyLocked() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}
