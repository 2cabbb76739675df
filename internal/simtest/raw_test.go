package simtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/penstock-go/penstock/internal/simtest/rawclient"
)

// A rawPlan is how a raw client is configured.
type rawPlan struct {
	User    string
	Greet   bool
	Session bool // with Greet
	Trace   bool // with Greet
	Deflate string
}

// deflateOffers are what browsers offer, what a client offers that cannot limit its window, and one that keeps a short window in one
// direction.
var deflateOffers = []string{
	"", "permessage-deflate; client_max_window_bits", "permessage-deflate",
	"permessage-deflate; server_no_context_takeover; client_max_window_bits=9",
}

// rawPlans draws one or two raw clients.
func (d *draw) rawPlans() (all []rawPlan) {
	for i := range 1 + d.IntN(2) {
		r := rawPlan{User: fmt.Sprintf("user%d", 1+d.IntN(4)), Greet: d.IntN(6) > 0}
		r.Session = r.Greet && d.IntN(4) > 0
		r.Trace = r.Greet && d.IntN(3) == 0
		r.Deflate = deflateOffers[(int(d.plan.Seed%4)+i)%4] // not drawn: the plans of older reports stay
		all = append(all, r)
	}
	return all
}

// A rawDevice has raw clients, which speak the protocol as its page describes it, and report every message that it does not
// permit. Steps act on the last one.
type rawDevice struct {
	rawPlan

	world *world
	index int
	host  string

	mu      sync.Mutex
	clients []*rawclient.Client
}

type rawRecord struct{ devices []*rawDevice }

// open connects the raw clients of the plan.
func (r *rawRecord) open(w *world) {
	for i, p := range w.plan.Raw {
		d := &rawDevice{rawPlan: p, world: w, index: i, host: fmt.Sprintf("raw%d", i)}
		d.add(rawclient.Grant{})
		r.devices = append(r.devices, d)
		w.Cleanup(d.close)
	}
}

// add connects another client, with the session of another one if the grant has a token.
func (d *rawDevice) add(g rawclient.Grant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.clients)
	c := rawclient.New(rawclient.Config{
		Dial:  func(ctx context.Context) (net.Conn, error) { return d.world.cluster.Dial(ctx, d.host) },
		Token: func() string { return fmt.Sprintf("%s/raw%d/0", d.User, d.index) },
		Rand:  rand.New(rand.NewPCG(d.world.plan.Seed, uint64(1000+100*d.index+n))), //nolint:gosec // a simulation
		Greet: d.Greet, Session: d.Session, Trace: d.Trace, Deflate: d.Deflate, Take: g,
		Answer: func(_ string, payload json.RawMessage) (string, any) { return "ASKED", payload },
		Report: func(format string, args ...any) {
			if !d.world.calm() && strings.Contains(format, "has no position") {
				return // known: after faults, a subscription of a handler may begin without one
			}
			at := time.Since(d.world.began)
			d.world.Errorf("raw client %d.%d at %v: %s", d.index, n, at, fmt.Sprintf(format, args...))
		},
	})
	d.clients = append(d.clients, c)
}

// all returns the clients that the device has had.
func (d *rawDevice) all() []*rawclient.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*rawclient.Client(nil), d.clients...)
}

func (d *rawDevice) close() {
	var closing sync.WaitGroup
	for _, c := range d.all() {
		closing.Go(func() { c.Close(1000) })
	}
	closing.Wait()
}

// Raw clients do everything that the protocol permits, and break connections where they like.
func rawFeature() feature {
	raw := func(run func(d *rawDevice, c *rawclient.Client, s step)) func(*world, step) {
		return func(w *world, s step) {
			if all := record[*rawRecord](w).devices; len(all) > 0 {
				d := all[s.Raw%len(all)]
				clients := d.all()
				run(d, clients[len(clients)-1], s)
			}
		}
	}
	faulty := func(run func(d *rawDevice, c *rawclient.Client, s step)) func(*world, step) {
		return raw(func(d *rawDevice, c *rawclient.Client, s step) { d.world.fault(); run(d, c, s) })
	}
	arguments := func(n int, longest time.Duration, families ...string) func(*draw, *step) {
		return func(d *draw, s *step) {
			s.Raw, s.N, s.For = d.IntN(len(d.plan.Raw)), d.IntN(n), d.span(longest)
			if len(families) > 0 {
				d.topic(s, families...)
			}
		}
	}
	return feature{
		begin: func(*world) any { return &rawRecord{} },
		verbs: []verb{
			{name: "rawSubscribe", weight: [3]int{6, 5, 5}, draw: arguments(8, time.Second, "log", "log", "short", "live", "room", "state"), run: raw((*rawDevice).subscribe)},
			{name: "rawUnsubscribe", weight: [3]int{2, 2, 2}, draw: arguments(1, time.Second, "log", "short", "live", "room", "state"), run: raw(func(_ *rawDevice, c *rawclient.Client, s step) { c.Unsubscribe(s.Topic) })},
			{name: "rawCall", weight: [3]int{4, 3, 5}, draw: arguments(4, 4*time.Second), run: raw((*rawDevice).call)},
			{name: "rawStream", weight: [3]int{3, 2, 3}, draw: arguments(30, 2*time.Second), run: raw((*rawDevice).stream)},
			{name: "rawEvent", weight: [3]int{2, 2, 4}, draw: arguments(2, time.Second), run: raw(func(d *rawDevice, c *rawclient.Client, s step) {
				c.Event("NOTE", note{ID: d.world.newID("c")}, s.N == 1)
			})},
			{name: "rawJoin", weight: [3]int{3, 3, 3}, draw: arguments(3, time.Second, "join"), run: raw(func(_ *rawDevice, c *rawclient.Client, s step) {
				c.Call("JOIN", join{Topic: s.Topic, Leave: s.N == 2}, rawclient.CallOptions{})
			})},
			{name: "rawRefused", weight: [3]int{2, 2, 2}, draw: arguments(len(refusedMessages), time.Second), run: raw((*rawDevice).refused)},
			{name: "rawMove", weight: [3]int{1, 1, 1}, draw: arguments(1, time.Second), run: raw(func(_ *rawDevice, c *rawclient.Client, _ step) { c.Move() })},
			{name: "rawDrop", weight: [3]int{0, 4, 4}, draw: arguments(600, time.Second), run: faulty((*rawDevice).drop)},
			{name: "rawHalfClose", weight: [3]int{0, 1, 1}, draw: arguments(1, time.Second), run: faulty(func(_ *rawDevice, c *rawclient.Client, _ step) { c.HalfClose() })},
			{name: "rawSlow", weight: [3]int{0, 2, 3}, draw: arguments(1, 20*time.Second), run: faulty(func(_ *rawDevice, c *rawclient.Client, s step) { c.Pause(s.For) })},
			{name: "rawRace", weight: [3]int{0, 2, 2}, draw: arguments(2, 50*time.Millisecond), run: faulty((*rawDevice).race)},
		},
		check: (*world).checkRaw,
	}
}

// subscribe asks for presence, positions and the state if N has the bits 1, 2 and 4.
func (d *rawDevice) subscribe(c *rawclient.Client, s step) {
	c.Subscribe(s.Topic, rawclient.SubscribeOptions{
		Presence: s.N&1 != 0, Positions: s.N&2 != 0 && hasHistory(s.Topic), State: s.N&4 != 0 && family(s.Topic) == "state",
	})
}

// call makes a call whose handler takes For; with N = 1 it is aborted after half of that, and with N > 1 acknowledged.
func (d *rawDevice) call(c *rawclient.Client, s step) {
	id := c.Call("WORK", work{ID: d.world.newID("c"), Millis: int(s.For.Milliseconds())}, rawclient.CallOptions{Ack: s.N > 1})
	if s.N == 1 && id != "" {
		d.world.begin(func() {
			time.Sleep(s.For / 2)
			c.Abort(id)
		})
	}
}

// stream asks for N items, two at a time.
func (d *rawDevice) stream(c *rawclient.Client, s step) {
	credit := int64(2)
	id := c.Call("COUNT", count{ID: d.world.newID("c"), N: s.N}, rawclient.CallOptions{Stream: true, Credit: &credit})
	if id == "" {
		return
	}
	d.world.begin(func() {
		for range s.N / 2 {
			time.Sleep(s.For / 10)
			if c.Outcome(id).Done {
				return
			}
			c.Credit(id, 2)
		}
	})
}

// refusedMessages cannot be read, or have a type that no server knows.
var refusedMessages = []string{`{"type":"NO"}`, `{`, `[]`, `{"type":7}`, `{"type":"$ws:unknown"}`}

func (d *rawDevice) refused(c *rawclient.Client, s step) {
	c.Refused([]byte(refusedMessages[s.N]))
	c.Heartbeat()
	c.Ping()
}

// drop cuts the connection after N bytes, of those that are read if N is even.
func (d *rawDevice) drop(c *rawclient.Client, s step) {
	if s.N%2 == 0 {
		c.Drop(s.N, -1)
		return
	}
	c.Drop(-1, s.N)
}

// maxRivals bounds the clients of a device.
const maxRivals = 4

// race lets another client resume the session, For after the connection is cut if N is 0, or while it lasts. Both present the
// same token.
func (d *rawDevice) race(c *rawclient.Client, s step) {
	g := c.Grant()
	if g.Token == "" || len(d.all()) == maxRivals {
		return
	}
	if s.N == 0 {
		c.Drop(0, 0)
	}
	d.world.begin(func() {
		time.Sleep(s.For)
		d.add(g)
	})
}
