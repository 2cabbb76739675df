package runs

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/executor"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/run/observe"
)

// A Config is what runs need of package run and of the router. All fields but Resume, Reserve and
// Settle are required.
type Config struct {
	host.Host

	Lease      time.Duration // how long a run lasts without a sign of life of its owner
	Flush      time.Duration // the longest time that an item waits for others
	FlushBytes int           // the bytes of items that do not wait for others
	MaxItems   int           // of a run
	MaxBytes   int64         // of a run, of the encoded items
	Duration   time.Duration // of a run
	Retain     time.Duration // after the end
	Grace      time.Duration // of producers at a shutdown

	Decode func(item json.RawMessage) (any, error)

	// Resume goes on with a run whose owner has died; nil if that ends the run.
	Resume func(o *Owned, rec Record, items []any) (Producer, error)

	// Settle replaces a reservation by what the items of the run have used. It can be repeated.
	Settle func(ctx context.Context, reservation json.RawMessage, items []any) error

	Changed func(Record) // a run has begun or has ended; it may block
	Observe func(observe.Event)
}

// Runs are the runs of one pattern of topics on one node. They are safe for concurrent use.
type Runs struct {
	config Config
	pool   executor.Pool // runs the tasks of owners

	mu       sync.Mutex
	views    map[string]*view // by the topic of the log
	owned    map[*Owned]struct{}
	starting int
	closing  bool
	idle     chan struct{}   // closed when closing and nothing is owned
	ctx      context.Context //nolint:containedctx // of this node, until it shuts down
	close    context.CancelFunc
}

// New returns the runs of a node.
func New(config Config) *Runs {
	r := &Runs{config: config, views: map[string]*view{}, owned: map[*Owned]struct{}{}, idle: make(chan struct{})}
	r.ctx, r.close = context.WithCancel(context.Background())
	config.OnShutdown(host.Shutdown{Begin: r.beginShutdown, End: r.endShutdown})
	return r
}

// storeTimeout bounds one call of the store. It is below the shortest lease.
const storeTimeout = 2 * time.Second

// The keys of values, and the topic of a log. No client can name the topic, because it contains a control
// character.
func recordKey(topic string) string     { return "run/" + topic }
func leaseKey(topic string) string      { return "run-lease/" + topic }
func logTopic(topic, id string) string  { return "\x00run/" + id + "/" + topic }
func newID() string                     { return rand.Text()[:20] }
func (r *Runs) lifetime() time.Duration { return r.config.Duration + r.config.Retain + r.config.Lease }

// retention returns that of a log. It never drops the first items of a run.
func (r *Runs) retention() broker.Retention {
	// Each item may be an entry of its own, and there may be requests to stop.
	return broker.Retention{Messages: r.config.MaxItems + 1000, Age: r.lifetime()}
}

// load returns the record of a topic.
func (r *Runs) load(ctx context.Context, topic string) (rec versionedRecord, err error) {
	v, err := r.config.Histories.LoadValue(ctx, recordKey(topic))
	if err != nil || v.Version == 0 {
		return rec, err
	}
	rec.version = v.Version
	err = decode(v.Data, &rec.Record)
	rec.Earlier = retained(rec.Earlier, time.Now(), r.config.Retain)
	return rec, err
}

// store replaces a record that has a version. One without an ID deletes it.
func (r *Runs) store(ctx context.Context, rec *versionedRecord) error {
	data, lifetime := encode(rec.Record), r.lifetime()
	switch {
	case rec.ID == "":
		data, lifetime = nil, 0
	case rec.End != nil:
		lifetime = r.config.Retain
	}
	version, err := r.config.Histories.StoreValue(ctx, recordKey(rec.Topic), data, rec.version, lifetime)
	if err == nil {
		rec.version = version
	}
	return err
}

// Find returns the run of a topic with an ID, or the latest one if id is "". It first ends a run without an
// owner.
func (r *Runs) Find(ctx context.Context, topic, id string) (Record, error) {
	rec, err := r.loadLive(ctx, topic)
	if err != nil {
		return Record{}, err
	}
	if found := rec.find(id, ""); found != nil {
		return *found, nil
	}
	return Record{}, errNoRun
}

// loadLive is load, but ends a run without an owner.
func (r *Runs) loadLive(ctx context.Context, topic string) (versionedRecord, error) {
	rec, err := r.load(ctx, topic)
	if err != nil || rec.ID == "" || rec.State.Ended() {
		return rec, err
	}
	abandoned, err := r.isAbandoned(ctx, &rec.Record)
	if err != nil || !abandoned {
		return rec, err
	}
	if err := r.takeOver(ctx, rec); err != nil {
		return rec, err
	}
	return r.load(ctx, topic)
}

var (
	errNoRun  = &errors.Error{Code: errors.NotFound, Message: "there is no such run"}
	errClosed = &errors.Error{Code: errors.Unavailable, Message: "the server is shutting down"}
)

// log reports what an operator should know.
func (r *Runs) log(message string, rec *Record, err error) {
	r.config.Logger.Warn("penstock: run: "+message, slog.String("topic", rec.Topic), slog.String("run", rec.ID), slog.Any("error", err))
}

// retry calls f until it returns no error that another attempt may change, or ctx is done.
func retry(ctx context.Context, f func(context.Context) error) error {
	var backoff rules.Backoff
	for {
		attempt, cancel := context.WithTimeout(ctx, storeTimeout)
		err := f(attempt)
		cancel()
		if err == nil || !isTemporary(err) {
			return err
		}
		if backoff.Wait(ctx) != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// isTemporary reports whether the store may accept the same call later.
func isTemporary(err error) bool {
	switch errors.CodeOf(err) {
	case errors.Aborted, errors.FailedPrecondition, errors.InvalidArgument, errors.NotFound:
		return false
	default:
		return true
	}
}
