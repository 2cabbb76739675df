package run

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/internal/runmessages"
	"github.com/penstock-go/penstock/internal/runs"
	"github.com/penstock-go/penstock/internal/topicname"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run/observe"
)

// Options configure the runs of a pattern. The zero value is a working configuration, in which clients may
// neither attach nor stop.
type Options[Item router.Message] struct {
	// Authorize decides whether a client may attach to a run of a topic, or stop it. A client that may not
	// receives NOT_FOUND, as if there were no run. If nil, no client may. It is asked again before another item
	// is sent when Router.Revoke was called for the user. Methods of Runs do not call it.
	Authorize func(ctx *router.Context, action Action, topic Topic) error

	// Merge returns one item that stands for two neighbors, such as the two texts in one, or false if they
	// must stay two. Readers who attach late or read slowly then receive fewer and larger items. It must not
	// change its arguments. If nil, items are never merged.
	Merge func(first, second Item) (merged Item, ok bool)

	// Resume goes on with a run whose node has died, with the items that it has. It is called on another node,
	// which then owns the run. If nil, such a run is [Interrupted].
	Resume func(ctx context.Context, out *Output[Item], items []Item) error

	// Lease is how long a run waits for a sign of life of its owner. It is at least 3 s. 10 s if 0.
	Lease time.Duration

	// Flush is how long an item waits for others at most, so that several are stored at once, and FlushBytes is
	// at how many bytes they do not wait. The first item never waits. 20 ms and 4 KiB if 0.
	Flush      time.Duration
	FlushBytes int

	// Limits bound a run, which otherwise ends as [Expired] or [Exhausted].
	Limits Limits

	// Retain is how long a run can be attached to after its end. 10 minutes if 0.
	Retain time.Duration

	// ShutdownGrace is how long producers may go on when Router.Shutdown has begun to close connections. Then
	// their context is canceled. 10 s if 0. Shutdown itself waits until its context is done.
	ShutdownGrace time.Duration

	// Budget is what runs take tokens from, if StartOptions.Budget says so. Its lease should be the longest
	// one, [limit.MaxLease]: a run that no node can settle keeps its tokens so long.
	Budget *limit.Meter

	// Tokens is what an item costs. If nil, an item costs one token.
	Tokens func(Item) int64

	// PerUser bounds the active runs of a StartOptions.User. If nil, they are unlimited. A run that is
	// resumed takes a permit as soon as the dead node does not hold it any more.
	PerUser limit.Semaphore

	// Observe receives what metrics count. It must not block. See Metrics.Run of package
	// middleware/metrics.
	Observe func(observe.Event)
}

// Limits bound a run.
type Limits struct {
	Duration time.Duration // 15 minutes if 0
	Items    int           // 100,000 if 0
	Bytes    int64         // of the items in JSON; 4 MiB if 0
}

// An Action is what a client asks for.
type Action string

// The actions.
const (
	ActionAttach Action = "attach"
	ActionStop   Action = "stop"
)

// A Topic is the topic of a run, which the pattern of New matches.
type Topic struct {
	name    string
	pattern topicname.Pattern
}

// String returns the name.
func (t Topic) String() string { return t.name }

// Value returns the part of the name that a wildcard of the pattern matches, or "" if there is no such
// wildcard.
func (t Topic) Value(wildcard string) string { return t.pattern.Value(t.name, wildcard) }

// Runs are the runs of the topics that a pattern matches. Their methods are safe for concurrent use.
type Runs[Item router.Message] struct {
	router  *router.Router
	text    string // the pattern
	pattern topicname.Pattern
	match   topicname.Matcher
	opts    Options[Item]
	host    host.Host
	runs    *runs.Runs
}

// New adds runs to a router: for topics that match a pattern such as "answer/{chat}", whose items have the
// type Item. It declares the topics with router.Topic, and registers two messages, whose types begin with
// that of the items. It panics if these exist, if an option is invalid, if Options.Broker of the router keeps
// no histories, or if the router has begun to serve. If opts is nil, the defaults are used.
func New[Item router.Message](r *router.Router, pattern string, opts *Options[Item]) *Runs[Item] {
	rs := &Runs[Item]{router: r, text: pattern, match: topicname.NewMatcher(pattern)}
	if opts != nil {
		rs.opts = *opts
	}
	rs.opts.setDefaults()
	rs.opts.mustBeValid()
	rs.register() // panics if the pattern is invalid
	rs.pattern, _ = topicname.Parse(pattern)
	rs.host = r.Host()
	if rs.host.Histories == nil {
		panic("run: the broker of the router keeps no histories; it must be a broker.HistoryBroker")
	}
	config := runs.Config{
		Host: rs.host, Lease: rs.opts.Lease, Flush: rs.opts.Flush, FlushBytes: rs.opts.FlushBytes,
		MaxItems: rs.opts.Limits.Items, MaxBytes: rs.opts.Limits.Bytes, Duration: rs.opts.Limits.Duration,
		Retain: rs.opts.Retain, Grace: rs.opts.ShutdownGrace,
		Decode: rs.decode, Settle: rs.settle, Changed: rs.changed, Observe: rs.opts.Observe,
	}
	if rs.opts.Resume != nil {
		config.Resume = rs.resume
	}
	rs.runs = runs.New(config)
	return rs
}

func (o *Options[Item]) setDefaults() {
	setDefault(&o.Lease, 10*time.Second)
	setDefault(&o.Flush, 20*time.Millisecond)
	setDefault(&o.FlushBytes, 4<<10)
	setDefault(&o.Limits.Duration, 15*time.Minute)
	setDefault(&o.Limits.Items, 100_000)
	setDefault(&o.Limits.Bytes, 4<<20)
	setDefault(&o.Retain, 10*time.Minute)
	setDefault(&o.ShutdownGrace, 10*time.Second)
	if o.Observe == nil {
		o.Observe = func(observe.Event) {}
	}
	if o.Tokens == nil {
		o.Tokens = func(Item) int64 { return 1 }
	}
}

func setDefault[T int | int64 | time.Duration](option *T, value T) {
	if *option == 0 {
		*option = value
	}
}

func (o *Options[Item]) mustBeValid() {
	const minLease = 3 * time.Second
	switch {
	case o.Lease < minLease:
		panic(fmt.Sprintf("run: Options.Lease is %v; it must be at least %v", o.Lease, minLease))
	case min(o.Flush, o.Limits.Duration, o.Retain, o.ShutdownGrace) < 0:
		panic("run: a duration of Options is negative")
	case min(int64(o.FlushBytes), int64(o.Limits.Items), o.Limits.Bytes) < 0:
		panic("run: Options.FlushBytes, Limits.Items or Limits.Bytes is negative")
	}
}

// check returns an error unless the pattern matches a topic.
func (rs *Runs[Item]) check(topic string) error {
	if !rs.match.Matches(topic) {
		return errors.Errorf(errors.InvalidArgument, "the topic %q does not match the pattern %q of the runs", topic, rs.text)
	}
	return nil
}

func (rs *Runs[Item]) decode(raw json.RawMessage) (any, error) {
	var item Item
	err := jsonv2.Unmarshal(raw, &item)
	return item, err
}

// changed publishes that a run has begun or has ended. It is a hint: readers learn the end from the run
// itself.
func (rs *Runs[Item]) changed(rec runs.Record) {
	m := runmessages.Changed{Run: rec.ID, State: string(rec.State), StartedAt: rec.StartedAt}
	_ = rs.router.Publish(rec.Topic, m)
}
