package clienttest_test

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/conformance"
)

// The messages of the scenarios.
type (
	say struct {
		N   int    `json:"n"`
		Pad string `json:"pad,omitempty"`
	}
	said struct {
		N     int  `json:"n"`
		Throw bool `json:"throw,omitempty"`
	}
	ask struct {
		N int `json:"n"`
	}
	answer struct {
		N int `json:"n"`
	}
	export struct {
		N int `json:"n"`
	}
	row struct {
		N int `json:"n"`
	}
	confirm struct {
		N  int    `json:"n"`
		Do string `json:"do,omitempty"` // "", wait, slow, fail or throw
	}
	confirmed struct {
		N int `json:"n"`
	}
)

func (say) MessageType() string       { return "SAY" }
func (said) MessageType() string      { return "SAID" }
func (ask) MessageType() string       { return "ASK" }
func (answer) MessageType() string    { return "ANSWER" }
func (export) MessageType() string    { return "EXPORT" }
func (confirm) MessageType() string   { return "CONFIRM" }
func (confirmed) MessageType() string { return "CONFIRMED" }

// A goDriver operates the Go client in this process.
type goDriver struct {
	log    *conformance.Inbox[event]
	client *client.Client
	http   *http.Client

	mu      sync.Mutex
	tokens  []string
	cancel  map[string]context.CancelFunc
	streams map[string]chan string // "next" or "break"
	subs    map[string]*client.Subscription
}

func newGoDriver(h *http.Client) *goDriver {
	return &goDriver{
		log: conformance.NewInbox[event](), http: h, cancel: map[string]context.CancelFunc{},
		streams: map[string]chan string{}, subs: map[string]*client.Subscription{},
	}
}

// Events returns what the client has done.
func (d *goDriver) Events() *conformance.Inbox[event] { return d.log }

// Context never ends: this driver does not fail.
func (d *goDriver) Context() context.Context { return context.Background() }

// Stop ends what a scenario has left. The bubble fails if a goroutine remains.
func (d *goDriver) Stop() bool {
	if d.client != nil {
		_ = d.client.Close(context.Background())
	}
	for _, wishes := range d.streams {
		close(wishes)
	}
	clear(d.streams)
	return true
}

func (d *goDriver) report(e event) { e.At = time.Now(); d.log.Add(e) }

// settled reports the end of an operation.
func (d *goDriver) settled(id string, n int, err error) {
	e := failure(err)
	e.Name, e.ID, e.N = "settled", id, n
	d.report(e)
}

func failure(err error) event {
	if err == nil {
		return event{}
	}
	e := event{Code: string(errors.CodeOf(err)), Unknown: errors.Is(err, client.ErrOutcomeUnknown)}
	if known, ok := errors.AsType[*errors.Error](err); ok {
		e.RetryAfterMs = int(known.RetryAfter.Milliseconds())
		e.Detail = errors.DetailsOf[errors.FieldDetails](known).Reason
	}
	return e
}

func decodeOptions[T any](c *command) (opts T) {
	if c.Opts != nil {
		if err := json.Unmarshal(c.Opts, &opts); err != nil {
			panic(err)
		}
	}
	return opts
}

// Do executes a command.
func (d *goDriver) Do(c *command) {
	switch c.Do {
	case "create":
		d.create(decodeOptions[clientOptions](c))
	case "connect":
		go func() { d.settled(c.ID, 0, d.client.Connect(context.Background())) }()
	case "call":
		ctx := d.context(c)
		go func() {
			reply, err := client.Call[answer](ctx, d.client, ask{c.N})
			d.settled(c.ID, reply.N, err)
		}()
	case "send":
		ctx := d.context(c)
		pad := ""
		if decodeOptions[struct{ Pad int }](c).Pad > 0 {
			pad = strings.Repeat("x", decodeOptions[struct{ Pad int }](c).Pad)
		}
		go func() { d.settled(c.ID, 0, client.Send(ctx, d.client, say{c.N, pad})) }()
	case "abort":
		d.mu.Lock()
		d.cancel[c.ID]()
		d.mu.Unlock()
	case "stream":
		d.stream(c)
	case "consume":
		ctx := d.context(c)
		go func() {
			for item, err := range client.Stream[row](ctx, d.client, export{c.N}) {
				if err != nil {
					d.settled(c.ID, 0, err)
					return
				}
				d.report(event{Name: "item", ID: c.ID, N: item.N})
			}
			d.settled(c.ID, 0, nil)
		}()
	case "next", "break":
		d.streams[c.ID] <- c.Do
	case "subscribe":
		d.subscribe(c)
	case "unsubscribe":
		d.mu.Lock()
		sub := d.subs[c.ID]
		d.mu.Unlock()
		sub.Unsubscribe()
	case "position":
		p := d.subs[c.ID].Position()
		d.report(event{Name: "position", ID: c.ID, Epoch: p.Epoch, Offset: p.Offset})
	case "allowed":
		at, ms := d.client.NextAllowedAt(c.ID), 0
		if !at.IsZero() {
			ms = int(time.Until(at).Milliseconds())
		}
		d.report(event{Name: "allowed", ID: c.ID, Ms: ms})
	case "close":
		go func() { d.settled(c.ID, 0, d.client.Close(context.Background())) }()
	default:
		panic("unknown command " + c.Do)
	}
}

// context returns the context of an operation, which abort cancels.
func (d *goDriver) context(c *command) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	if ms := decodeOptions[callOptions](c).TimeoutMs; ms > 0 {
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(ms)*time.Millisecond)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel[c.ID] = cancel
	return ctx
}

func (d *goDriver) create(o clientOptions) {
	opts := &client.Options{
		Logger:     slog.New(slog.DiscardHandler),
		HTTPClient: d.http, Pacing: o.Pacing, Resume: o.Session, CallTimeout: time.Duration(o.TimeoutMs) * time.Millisecond,
		PingInterval: 25 * time.Second,
		Queue:        client.Queue{MaxMessages: o.Messages, MaxWait: time.Duration(o.ExpireMs) * time.Millisecond},
		OnState:      func(s client.State, _ error) { d.report(event{Name: "state", State: s.String()}) },
		OnError: func(_ string, err error) {
			e := failure(err)
			e.Name = "error"
			d.report(e)
		},
	}
	if o.CBOR {
		opts.Codec = codec
	}
	if o.Oldest {
		opts.Queue.Overflow = client.DropOldest
	}
	if d.tokens = o.Tokens; len(o.Tokens) > 0 {
		opts.Token = d.token
	}
	d.client = client.New(o.URL, opts)
	client.On(d.client, func(m said, r *client.Received) {
		d.report(event{Name: "message", N: m.N, Topic: r.Topic, Offset: r.Position.Offset, FromState: r.State})
		if m.Throw {
			panic("the handler fails")
		}
	})
	client.Handle(d.client, d.serve)
}

func (d *goDriver) token(ctx context.Context, expired bool) (string, error) {
	d.report(event{Name: "token", Expired: expired})
	d.mu.Lock()
	token := d.tokens[0]
	if len(d.tokens) > 1 {
		d.tokens = d.tokens[1:]
	}
	d.mu.Unlock()
	switch token {
	case "!hang":
		<-ctx.Done()
		return "", context.Cause(ctx)
	case "!fail":
		return "", errors.New("no token")
	}
	return token, nil
}

func (d *goDriver) serve(ctx context.Context, q confirm) (confirmed, error) {
	d.report(event{Name: "served", N: q.N})
	switch q.Do {
	case "wait":
		<-ctx.Done()
		d.report(event{Name: "served-ended", N: q.N})
		return confirmed{}, ctx.Err()
	case "slow": // and does not look at its context
		time.Sleep(5 * time.Second)
	case "fail":
		return confirmed{}, errors.Errorf(errors.PermissionDenied, "the user said no")
	case "throw":
		panic("secret")
	}
	return confirmed{q.N}, nil
}

// stream starts a goroutine that consumes a stream as it is asked to.
func (d *goDriver) stream(c *command) {
	ctx, wishes := d.context(c), make(chan string, 1000)
	d.streams[c.ID] = wishes
	go func() {
		next, stop := iter.Pull2(client.Stream[row](ctx, d.client, export{c.N}))
		defer stop()
		for wish := range wishes {
			if wish == "break" {
				stop()
				d.settled(c.ID, 0, nil)
				return
			}
			item, err, ok := next()
			if !ok || err != nil {
				d.settled(c.ID, 0, err)
				return
			}
			d.report(event{Name: "item", ID: c.ID, N: item.N})
		}
	}()
}

func (d *goDriver) subscribe(c *command) {
	o, topic := decodeOptions[topicOptions](c), c.Topic
	opts := &client.SubscribeOptions{
		Since: client.Position{Epoch: o.Epoch, Offset: o.Offset}, State: o.State, Last: o.Last, Hidden: o.Hidden,
		OnLoss: func(l client.Loss) {
			d.report(event{Name: "loss", Topic: topic, From: l.From, To: l.To, Ended: l.Ended != nil})
		},
		OnEnd: func(err error) { e := failure(err); e.Name, e.Topic = "ended", topic; d.report(e) },
	}
	if o.Presence {
		members := map[string]bool{}
		opts.OnPresence = func(joined, left []client.Member, reset bool) {
			if reset {
				clear(members)
			}
			for _, m := range left {
				delete(members, m.ConnID)
			}
			for _, m := range joined {
				members[m.ConnID] = true
			}
			d.report(event{Name: "presence", Topic: topic, N: len(members)})
		}
	}
	ctx := d.context(c)
	go func() {
		sub, err := d.client.Subscribe(ctx, topic, opts)
		d.mu.Lock()
		d.subs[c.ID] = sub
		d.mu.Unlock()
		d.settled(c.ID, 0, err)
	}()
}
