package inspect

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/host"
	"github.com/penstock-go/penstock/internal/jsonv2"
	"github.com/penstock-go/penstock/router"
)

// Bounds of traces, on each node.
const (
	maxTraces       = 4               // at the same time
	maxTraceTime    = 5 * time.Minute // of one
	maxTraceRate    = 100             // entries per second of one
	maxTraceEntries = 1000            // that one keeps
	maxPayloadBytes = 1 << 10         // of what Options.Redact returns
)

// A traceSpec selects messages of clients: those of User, Conn and Type that are set must all apply. Or
// it selects the publications of a Topic, optionally of one Type.
type traceSpec struct {
	ID string `json:"id,omitempty"` // set by the node that has received the request

	traceRequest
}

// A traceRequest is what an operator asks for.
type traceRequest struct {
	Tenant   string `json:"tenant,omitempty"`
	User     string `json:"user,omitempty"`
	Conn     string `json:"conn,omitempty"`
	Type     string `json:"type,omitempty"`
	Topic    string `json:"topic,omitempty"`
	Seconds  int    `json:"seconds,omitempty"` // from 1 to 300
	Payloads bool   `json:"payloads,omitempty"`
}

func (s *traceSpec) check() error {
	switch {
	case s.User == "" && s.Conn == "" && s.Type == "" && s.Topic == "":
		return errors.Errorf(errors.InvalidArgument, "a trace needs a user, a connection, a type or a topic")
	case s.Topic != "" && (s.User != "" || s.Conn != "" || s.Payloads):
		return errors.Errorf(errors.InvalidArgument, "a trace of a topic has no user, no connection and no payloads")
	case s.Seconds < 1 || s.Seconds > int(maxTraceTime/time.Second):
		return errors.Errorf(errors.InvalidArgument, "seconds is %d; it must be from 1 to %d", s.Seconds, int(maxTraceTime/time.Second))
	}
	return nil
}

func (s *traceSpec) matches(conn, messageType, tenant, user string) bool {
	return s.Topic == "" && (s.User == "" || s.User == user && s.Tenant == tenant) && (s.Conn == "" || s.Conn == conn) && (s.Type == "" || s.Type == messageType)
}

// A traceEntry is what has happened to one message.
type traceEntry struct {
	Number     uint64    `json:"number"` // on its node, from 1
	Time       time.Time `json:"time"`
	Node       string    `json:"node"`
	Conn       string    `json:"conn"`
	Tenant     string    `json:"tenant"`
	User       string    `json:"user"`
	Type       string    `json:"type"`
	Event      string    `json:"event"` // "received", "handled", "refused" or "published"
	Size       int64     `json:"size"`  // of a received or published message, in bytes
	Code       string    `json:"code"`  // "" if the handler has returned nil
	DurationUs int64     `json:"durationUs"`
	Offset     uint64    `json:"offset"`    // of a publication; 0 without a history
	Receivers  int       `json:"receivers"` // connections of the node to which a publication was sent
	Payload    string    `json:"payload"`   // the beginning of what Options.Redact has returned, as JSON
}

// A trace records messages on this node.
type trace struct {
	spec  traceSpec
	until time.Time
	timer *time.Timer // ends the trace

	mu       sync.Mutex
	entries  []traceEntry // the latest
	last     uint64       // number of the latest entry
	second   int64        // in which inSecond entries were added
	inSecond int
	skipped  int64 // because of the rate
}

// add adds an entry unless there are too many in this second.
func (t *trace) add(e traceEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := e.Time.Unix(); now != t.second {
		t.second, t.inSecond = now, 0
	}
	if t.inSecond++; t.inSecond > maxTraceRate {
		t.skipped++
		return
	}
	if len(t.entries) == maxTraceEntries {
		t.entries = slices.Delete(t.entries, 0, maxTraceEntries/4)
	}
	t.last++
	e.Number = t.last
	t.entries = append(t.entries, e)
}

// after returns the first entries after a number, at most maxRows.
func (t *trace) after(number uint64) (entries []traceEntry, skipped int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, _ := slices.BinarySearchFunc(t.entries, number+1, func(e traceEntry, n uint64) int {
		if e.Number < n {
			return -1
		}
		return int(min(e.Number-n, 1))
	})
	return slices.Clone(firstRows(t.entries[i:])), t.skipped
}

// recorders are what messages are recorded for. They are replaced when they change.
type recorders struct {
	traces   []*trace
	previews []*preview
	hot      *hotTopics // nil while no operator looks at the topics with the most publications
}

// traces guards the changes of Inspector.recorders.
type traces struct{ mu sync.Mutex }

// changeRecorders replaces the recorders by what change returns.
func (i *Inspector) changeRecorders(change func(recorders) (recorders, error)) error {
	i.traces.mu.Lock()
	defer i.traces.mu.Unlock()
	var before recorders
	if r := i.recorders.Load(); r != nil {
		before = *r
	}
	after, err := change(recorders{slices.Clone(before.traces), slices.Clone(before.previews), before.hot})
	if err != nil {
		return err
	}
	i.observeDeliveries(after)
	if len(after.traces)+len(after.previews) == 0 && after.hot == nil {
		i.recorders.Store(nil)
		return nil
	}
	i.recorders.Store(&after)
	return nil
}

// observeDeliveries observes publications while there is a trace of a topic, or topics are counted.
func (i *Inspector) observeDeliveries(r recorders) {
	if r.hot == nil && !slices.ContainsFunc(r.traces, func(t *trace) bool { return t.spec.Topic != "" }) {
		i.access.ObserveDeliveries(nil)
		return
	}
	i.access.ObserveDeliveries(i.recordDelivery)
}

// recordDelivery records a publication on this node, which has subscribers of the topic.
func (i *Inspector) recordDelivery(d host.Delivery) {
	r := i.recorders.Load()
	if r == nil {
		return
	}
	if r.hot != nil {
		r.hot.count(&d)
	}
	for _, t := range r.traces {
		if t.spec.Topic != d.Topic {
			continue
		}
		var message struct {
			Type string `json:"type"`
		}
		_ = jsonv2.Unmarshal(d.Message, &message) // without JSON, the type is not known
		if t.spec.Type == "" || t.spec.Type == message.Type {
			t.add(traceEntry{
				Time: time.Now(), Node: i.router.NodeID(), Type: message.Type, Event: "published", Size: int64(len(d.Message)),
				Offset: d.Offset, Receivers: d.Receivers,
			})
		}
	}
}

// ingress records a received message. It refuses none.
func (i *Inspector) ingress(ctx context.Context, in router.IngressContext) error {
	r := i.recorders.Load()
	if r == nil {
		return nil
	}
	for _, t := range r.traces {
		if t.spec.matches(in.ConnID, in.Type, in.Identity.TenantID, in.Identity.UserID) {
			e := i.entryOf(&in, "received")
			e.Time, e.Size = in.ReceivedAt, in.Size
			t.add(e)
		}
	}
	for _, p := range r.previews {
		p.count(ctx, in)
	}
	return nil
}

func (i *Inspector) entryOf(in *router.IngressContext, event string) traceEntry {
	return traceEntry{
		Time: time.Now(), Node: i.router.NodeID(), Conn: in.ConnID, Tenant: in.Identity.TenantID, User: in.Identity.UserID,
		Type: in.Type, Event: event,
	}
}

// middleware records the outcome of a handler.
func (i *Inspector) middleware(next router.Handler) router.Handler {
	return func(ctx *router.Context) error {
		r := i.recorders.Load()
		if r == nil || len(r.traces) == 0 {
			return next(ctx)
		}
		return i.traceHandler(ctx, next, r.traces)
	}
}

func (i *Inspector) traceHandler(ctx *router.Context, next router.Handler, all []*trace) (err error) {
	in, start := ctx.Ingress(), time.Now()
	code := string(errors.Internal) // of a panic
	defer func() {
		for _, t := range all {
			if !t.spec.matches(in.ConnID, in.Type, in.Identity.TenantID, in.Identity.UserID) {
				continue
			}
			e := i.entryOf(&in, "handled")
			e.Code, e.DurationUs = code, time.Since(start).Microseconds()
			if t.spec.Payloads {
				e.Payload = i.redacted(ctx.Message())
			}
			t.add(e)
		}
	}()
	if err = next(ctx); err == nil {
		code = ""
	} else {
		code = string(errors.CodeOf(err))
	}
	return err
}

// redacted returns the beginning of what Options.Redact returns, as JSON. A panic of that does not
// end the message.
func (i *Inspector) redacted(m router.Message) (text string) {
	if i.opts.Redact == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			text = "Redact has panicked"
		}
	}()
	encoded, err := json.Marshal(i.opts.Redact(m))
	if err != nil {
		return "cannot be encoded"
	}
	return truncate(string(encoded), maxPayloadBytes)
}

// traceRefusal records a refusal that the router reports.
func (i *Inspector) traceRefusal(row *refusal) {
	r := i.recorders.Load()
	if r == nil {
		return
	}
	for _, t := range r.traces {
		if t.spec.matches(row.Conn, row.Type, row.Tenant, row.User) {
			t.add(traceEntry{
				Time: row.Time, Node: row.Node, Conn: row.Conn, Tenant: row.Tenant, User: row.User,
				Type: row.Type, Event: "refused", Code: row.Code,
			})
		}
	}
}
