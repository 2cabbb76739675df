package simtest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/client/fallback"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/errors"
)

// A simClient is a user's device: it has one client.Client after the other.
type simClient struct {
	clientPlan

	world *world
	index int
	host  string

	mu         sync.Mutex
	current    *life // nil while the device is off
	lives      []*life
	tokenLives int // seconds that the identity of new tokens lives; 0 is forever
}

// A life is a client.Client from New to Close.
type life struct {
	*client.Client

	device *simClient
	opened time.Time

	mu       sync.Mutex
	watches  []*watch
	received []receipt // messages that are no publications of a watch
	closed   time.Time // Close was called, or the client has stopped
	conns    []span    // while it was connected
	asked    map[string]int
}

// A span is the time of a connection.
type span struct {
	from, to time.Time // to is zero while it lasts
	connID   string
	resumed  bool
	err      error // why it ended
}

// A receipt is a message that a client has received.
type receipt struct {
	kind  string // its message type
	id    string
	topic string
	at    time.Time
}

func newSimClient(w *world, index int, p clientPlan) *simClient {
	d := &simClient{clientPlan: p, world: w, index: index, host: fmt.Sprintf("device%d", index)}
	d.open()
	return d
}

// open turns the device on, and reports false if it was on.
func (d *simClient) open() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current != nil {
		return false
	}
	transport := d.world.cluster.Transport(d.host)
	if d.Fallback {
		transport = fallback.New("http://cluster.test/ws/http", &fallback.Options{Base: blocked{transport}})
	}
	l := &life{device: d, opened: time.Now(), asked: map[string]int{}}
	opts := &client.Options{
		HTTPClient: &http.Client{Transport: transport},
		Token:      l.token,
		Resume:     d.Resume,
		Pacing:     d.Pacing,
		StopOn:     func(code int) bool { return code == closeStop },
		OnState:    l.onState,
		Logger:     slog.New(slog.NewTextHandler(logOutput, nil)),
	}
	if d.CBOR {
		opts.Codec = cbor.New(nil)
	}
	l.Client = d.world.cluster.Client(d.host, opts)
	client.On(l.Client, func(m letter, r *client.Received) { l.receive("LETTER", m.ID, r) })
	client.On(l.Client, func(m item, r *client.Received) { l.receive("ITEM", m.ID, r) })
	client.Handle(l.Client, l.answer)
	for _, f := range features() {
		if f.client != nil {
			f.client(l)
		}
	}
	d.current = l
	d.lives = append(d.lives, l)
	d.world.begin(func() {
		ctx, cancel := timeout(time.Minute)
		defer cancel()
		_ = l.Connect(ctx) // it tries again by itself
	})
	return true
}

// closeStop is the close code after which clients do not connect again, and closeAgain one after which they do.
const (
	closeStop  = 4000
	closeAgain = 4001
)

// off turns the device off; graceful ends the session.
func (d *simClient) off() {
	d.mu.Lock()
	l := d.current
	d.current = nil
	d.mu.Unlock()
	if l == nil {
		return
	}
	l.end()
	ctx, cancel := timeout(time.Minute)
	defer cancel()
	if err := l.Close(ctx); err != nil {
		d.world.Errorf("client %d did not close: %v", d.index, err)
	}
}

// life returns the running client, or nil.
func (d *simClient) life() *life {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.current
}

func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.IsZero() {
		l.closed = time.Now()
	}
}

func (l *life) ended() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.closed.IsZero()
}

// onState records connections.
func (l *life) onState(s client.State, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.conns); n > 0 && l.conns[n-1].to.IsZero() {
		l.conns[n-1].to, l.conns[n-1].err = time.Now(), err
	}
	switch s {
	case client.Open:
		info, _ := l.Connection()
		l.conns = append(l.conns, span{from: time.Now(), connID: info.ID, resumed: info.Resumed})
	case client.Closed:
		if l.closed.IsZero() {
			l.closed = time.Now()
			l.device.stopped(l, err)
		}
	}
}

// stopped is called when a client has given up.
func (d *simClient) stopped(l *life, err error) {
	go func() { // the lock of the client is held; no step waits for this
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.current == l {
			d.current = nil
		}
	}()
	d.world.clientStopped(d, err)
}

func (l *life) receive(kind, id string, r *client.Received) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.received = append(l.received, receipt{kind, id, r.Topic, time.Now()})
}

func (l *life) answer(_ context.Context, m ask) (asked, error) {
	l.mu.Lock()
	l.asked[m.ID]++
	l.mu.Unlock()
	if l.device.SlowHandlers {
		time.Sleep(slowAnswer)
	}
	return asked(m), nil
}

// blocked is a network in which WebSocket does not work.
type blocked struct{ http.RoundTripper }

// RoundTrip fails for upgrades.
func (b blocked) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Upgrade") != "" {
		return nil, errors.New("a proxy has closed the connection")
	}
	return b.RoundTripper.RoundTrip(req)
}

// slowAnswer is how long a slow client takes to answer a call of the server.
const slowAnswer = time.Second

var logOutput io.Writer = io.Discard
