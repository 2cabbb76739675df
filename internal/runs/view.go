package runs

import (
	"context"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/internal/sequencer"
)

// A view is what this node knows of the log of a run, while it has readers here, or while this node
// owns it.
type view struct {
	runs      *Runs
	topic, id string
	ctx       context.Context //nolint:containedctx // of the view
	cancel    context.CancelFunc

	// Runs.mu guards these.
	sequencer *sequencer.Sequencer
	users     int
	readers   int

	mu       sync.Mutex
	state    logState
	cursor   sequencer.Cursor // in the log, from its beginning; a sequencer passes on what it does not read
	reading  bool             // a goroutine runs the cursor
	keeping  bool             // the items are kept, and not only counted
	heardAt  time.Time        // of the last entry
	failover time.Time        // when this node learned that the store may have lost something
	changed  chan struct{}    // closed at the next change
	owner    *Owned           // on this node; nil if there is none
	watching bool
}

// acquire returns the view of a run. The caller must release it.
func (r *Runs) acquire(topic, id string, reader bool) *view {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := logTopic(topic, id)
	v := r.views[name]
	if v == nil {
		v = &view{runs: r, topic: topic, id: id, changed: make(chan struct{})}
		v.ctx, v.cancel = context.WithCancel(r.ctx)
		r.views[name] = v
		v.sequencer = r.config.Follow(name, r.retention(), sequencer.Sink{Deliver: v.deliver, Lost: v.lose})
	}
	v.users++
	if reader {
		v.readers++
	}
	return v
}

// release ends what acquire began.
func (v *view) release(reader bool) {
	r := v.runs
	r.mu.Lock()
	defer r.mu.Unlock()
	if reader {
		v.readers--
	}
	if v.users--; v.users > 0 {
		return
	}
	name := logTopic(v.topic, v.id)
	delete(r.views, name)
	v.cancel()
	r.config.Unfollow(name)
}

// load reads what the log has, and the items if they are wanted. Then it forgets what was only counted: entries before an
// end that is known would not count.
func (v *view) load(items bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if items && !v.keeping {
		v.keeping, v.state = true, logState{}
		v.cursor.Begin()
	}
	v.readLocked()
}

// deliver handles an entry. The sequencer calls it in the order of the log.
func (v *view) deliver(p broker.Publication) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heardAt = time.Now()
	if v.cursor.Published(p.Position) {
		v.applyLocked(p)
		v.notifyLocked()
		return
	}
	v.readLocked()
}

// lose handles that entries are lost, or that the store may have lost some. Numbers of items show what is new when the log
// is read again.
func (v *view) lose(l sequencer.Loss) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l.Epoch != "" || l.Reset {
		v.failover = time.Now()
	}
	v.cursor.Begin()
	v.readLocked()
	if v.owner != nil {
		v.owner.failedOver()
	}
}

func (v *view) applyLocked(p broker.Publication) {
	decode := v.runs.config.Decode
	if !v.keeping {
		decode = nil
	}
	v.state.apply(p.Packet, decode)
}

func (v *view) notifyLocked() {
	close(v.changed)
	v.changed = make(chan struct{})
	if v.owner != nil {
		v.owner.hear(v.state.stop, v.state.end)
	}
}

// readLocked makes a goroutine read what the cursor has to read.
func (v *view) readLocked() {
	if !v.reading && !v.cursor.IsLive() {
		v.reading = true
		go v.read()
	}
}

// await waits until a condition holds, which it checks with the lock held after every change.
func (v *view) await(ctx context.Context, holds func() bool) error {
	for {
		v.mu.Lock()
		ok, changed := holds(), v.changed
		v.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-v.ctx.Done():
			return errClosed
		}
	}
}

// read runs the cursor until it is live.
func (v *view) read() {
	v.runs.mu.Lock() // the sequencer may call the view before acquire has set it
	s := v.sequencer
	v.runs.mu.Unlock()
	entries := v.runs.logOf(v.topic, v.id)
	for v.ctx.Err() == nil && s.AwaitAttached(v.ctx) == nil {
		err := entries.Run(v.ctx, &v.cursor, &v.mu, func(page broker.Page) bool {
			for _, p := range page.Publications {
				v.applyLocked(p)
			}
			v.notifyLocked()
			return true
		})
		if err != nil { // one that no attempt changes, unless the store does
			_ = rules.Sleep(v.ctx, watchInterval)
		}
		if v.endRead(err) {
			return
		}
	}
}

// endRead reports whether the goroutine ends that runs the cursor. After an error, it reads the log from its beginning.
func (v *view) endRead(err error) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err != nil {
		v.cursor.Begin()
	}
	v.reading = !v.cursor.IsLive()
	return !v.reading
}

// nextLocked returns the items from a number on, and the end when there are no more.
func (v *view) nextLocked(from uint64) (items []any, end *End) {
	n := uint64(len(v.state.items))
	switch {
	case from < n:
		return v.state.items[from:n:n], nil
	case v.cursor.IsLive():
		return nil, v.state.end
	default:
		return nil, nil
	}
}

// own sets the owner of the run on this node; nil is none.
func (v *view) own(o *Owned) {
	v.mu.Lock()
	v.owner = o
	v.mu.Unlock()
	if o == nil {
		v.startWatching() // for readers that are left, if another node goes on with the run
	}
}

// control returns what the log says to the owner. end is nil unless the run has ended.
func (v *view) control() (stop *stopRequest, end *End) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state.stop, v.state.end
}
