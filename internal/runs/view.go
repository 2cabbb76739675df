package runs

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/sequencer"
	"github.com/penstock-go/penstock/internal/sleep"
)

// A view is what this node knows of the log of a run, while it has readers here, or while this node
// owns it.
type view struct {
	runs      *Runs
	topic, id string
	follower  host.Follower
	ctx       context.Context //nolint:containedctx // of the view
	cancel    context.CancelFunc

	users   int // guarded by Runs.mu
	readers int // likewise

	mu       sync.Mutex
	state    logState
	loaded   bool                 // the log has been read, or is being read, from its beginning
	wanted   bool                 // a reader needs the items
	keeping  bool                 // the items are kept, and not only counted
	loading  bool                 // the log is being read from its beginning
	again    bool                 // and must be read again
	waiting  []broker.Publication // what has arrived meanwhile
	heardAt  time.Time            // of the last entry
	failover time.Time            // when this node learned that the store may have lost something
	changed  chan struct{}        // closed at the next change
	owner    *Owned               // on this node; nil if there is none
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
		v.follower = r.config.Follow(name, r.retention(), sequencer.Sink{Deliver: v.deliver, Lost: v.lose})
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
	delete(r.views, logTopic(v.topic, v.id))
	v.cancel()
	v.follower.Close()
}

// load reads what the log has, and the items if they are wanted.
func (v *view) load(items bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.loaded || items && !v.wanted {
		v.loaded, v.wanted = true, v.wanted || items
		v.loadLocked()
	}
}

// deliver handles an entry. The sequencer calls it in the order of the log.
func (v *view) deliver(p broker.Publication) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heardAt = time.Now()
	if v.loading {
		p.Packet = slices.Clone(p.Packet)
		v.waiting = append(v.waiting, p)
		return
	}
	v.applyLocked(p)
	v.notifyLocked()
}

// lose handles that entries are lost, or that the store may have lost some.
func (v *view) lose(l sequencer.Loss) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if l.Epoch != "" || l.Reset {
		v.failover = time.Now()
	}
	v.loadLocked()
	if v.owner != nil {
		v.owner.failedOver()
	}
}

func (v *view) applyLocked(p broker.Publication) {
	if p.Position.Offset <= v.state.offset && p.Position.Epoch == v.state.epoch {
		return
	}
	decode := v.runs.config.Decode
	if !v.keeping {
		decode = nil
	}
	v.state.apply(p.Packet, decode)
	v.state.epoch, v.state.offset = p.Position.Epoch, p.Position.Offset
}

func (v *view) notifyLocked() {
	close(v.changed)
	v.changed = make(chan struct{})
}

// loadLocked reads the log on a goroutine of its own.
func (v *view) loadLocked() {
	if v.loading {
		v.again = true
		return
	}
	v.loading = true
	go v.read()
}

// reload reads the log, and returns when that is done. It returns false if the view ends before.
func (v *view) reload() bool {
	v.mu.Lock()
	v.loadLocked()
	v.mu.Unlock()
	for {
		v.mu.Lock()
		loading, changed := v.loading, v.changed
		v.mu.Unlock()
		if !loading {
			return true
		}
		select {
		case <-changed:
		case <-v.ctx.Done():
			return false
		}
	}
}

func (v *view) read() {
	for {
		attached := make(chan struct{})
		v.following().WhenAttached(func(broker.Position) { close(attached) })
		select {
		case <-attached:
		case <-v.ctx.Done():
			return
		}
		v.beginRead()
		_, err := v.runs.readLog(v.ctx, v.topic, v.id, func(p broker.Publication) {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.replayLocked(p)
		})
		switch {
		case v.ctx.Err() != nil:
			return
		case err != nil: // one that no attempt changes, unless the store does
			_ = sleep.For(v.ctx, watchInterval)
		case v.endLoad():
			return
		}
	}
}

// following returns the follower, which a sink may need before acquire has set it.
func (v *view) following() host.Follower {
	v.runs.mu.Lock()
	defer v.runs.mu.Unlock()
	return v.follower
}

// beginRead forgets what is known if items that were only counted are wanted now: entries before an end
// that is known would not count.
func (v *view) beginRead() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.wanted && !v.keeping {
		v.keeping, v.state = true, logState{}
	}
}

// replayLocked applies an entry that may have been applied before. Numbers of items show what is new.
func (v *view) replayLocked(p broker.Publication) {
	v.state.epoch, v.state.offset = "", 0
	v.applyLocked(p)
}

// endLoad applies what has arrived meanwhile. It reports false if the log must be read again.
func (v *view) endLoad() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.again {
		v.again = false
		return false
	}
	for _, p := range v.waiting {
		v.applyLocked(p)
	}
	v.loading, v.waiting = false, nil
	v.notifyLocked()
	return true
}

// next returns the items from a number on, and the end when there are no more. changed is closed when there
// may be others.
func (v *view) next(from uint64) (items []any, end *End, changed <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := uint64(len(v.state.items))
	if from < n {
		return v.state.items[from:n:n], nil, nil
	}
	if !v.loading {
		end = v.state.end
	}
	return nil, end, v.changed
}

// isLoading reports whether the log is being read, so that next may not have all of it.
func (v *view) isLoading() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.loading
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

// control returns what the log says to the owner, and to those who have requested to stop. end is nil unless
// the run has ended.
func (v *view) control() (stop *stopRequest, end *End, changed <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.state.stop, v.state.end, v.changed
}
