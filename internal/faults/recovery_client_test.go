//go:build unix

package faults_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/penstock-go/penstock/broker"
)

// A frame is what a server sends to a client of the recovery tests.
type frame struct {
	Type string
	Meta struct {
		Topic         string
		Offset        uint64
		CorrelationID string
	}
	Payload struct {
		story

		Epoch     string
		Offset    uint64
		Recovered bool
		Reset     bool
		Lost      *offsets
		Ended     *broker.Position
		Outcome   outcome
	}
}

// A follower is a client that follows topics across connections to different nodes, as the protocol
// requires, and records all that it receives.
type follower struct {
	name  string
	rng   *rand.Rand
	topic map[string]*topicRecord
	pick  func() (addr string, ok bool) // of a node
	stay  atomic.Bool                   // with the current node
	away  atomic.Bool                   // stays disconnected

	mu     sync.Mutex
	last   map[string]broker.Position
	newest map[string]int64 // by topic: when the newest story was begun
	resets int              // returns that were not recovered, and notices
	addr   string           // of the node; "" while it is disconnected
}

const (
	dialTimeout   = time.Second
	silentTimeout = 2 * time.Second // the connection may be half-open
	maxStay       = 3 * time.Second
)

// run follows until ctx is done.
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		f.connect(ctx)
		f.setAddr("")
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(f.rng.IntN(200)) * time.Millisecond):
		}
	}
}

func (f *follower) setAddr(addr string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addr = addr
}

// connect follows on one connection, until it breaks or the client wants to move.
func (f *follower) connect(ctx context.Context) {
	addr, ok := f.pick()
	if !ok || f.away.Load() {
		return
	}
	ws, err := dial(ctx, addr, f.name)
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	leave := time.Now().Add(100*time.Millisecond + time.Duration(f.rng.Int64N(int64(maxStay))))
	f.setAddr(addr)
	for name := range f.topic {
		if err := f.subscribe(ctx, ws, name); err != nil {
			return
		}
	}
	// On a busy machine, clients that leave before they have caught up would fall behind without end.
	for awaited := len(f.topic); (awaited > 0 || f.stay.Load() || time.Now().Before(leave)) && !f.away.Load(); {
		m, err := receive(ctx, ws, silentTimeout)
		if err != nil || !f.handle(&m) {
			return
		}
		if m.Type == "$ws:subscribed" {
			awaited--
		}
	}
}

// dial connects to a node.
func dial(ctx context.Context, addr, user string) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+addr+"/"+user, nil)
	return ws, err
}

func receive(ctx context.Context, ws *websocket.Conn, timeout time.Duration) (m frame, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, text, err := ws.Read(ctx)
	if err != nil {
		return m, err
	}
	return m, json.Unmarshal(text, &m)
}

func (f *follower) subscribe(ctx context.Context, ws *websocket.Conn, topic string) error {
	payload := map[string]any{"topic": topic, "positions": true}
	if since, ok := f.last[topic]; ok {
		payload = map[string]any{"topic": topic, "epoch": since.Epoch, "offset": since.Offset}
	}
	ctx, cancel := context.WithTimeout(ctx, silentTimeout)
	defer cancel()
	return wsjson.Write(ctx, ws, map[string]any{"type": "$ws:subscribe", "meta": map[string]any{"correlationId": topic}, "payload": payload})
}

// handle records a message. It returns false if the client has to connect again.
func (f *follower) handle(m *frame) bool {
	p := &m.Payload
	switch m.Type {
	case "STORY":
		f.handleStory(m.Meta.Topic, m.Meta.Offset, &p.story)
	case "$ws:subscribed":
		s := step{kind: subscribed, since: f.last[p.Topic], position: broker.Position{Epoch: p.Epoch, Offset: p.Offset}, recovered: p.Recovered, ended: p.Ended}
		f.move(p.Topic, &s, s.since.Epoch != "" && !s.recovered)
	case "$ws:position":
		s := step{kind: moved, position: broker.Position{Epoch: p.Epoch, Offset: p.Offset}, reset: p.Reset, lost: p.Lost, ended: p.Ended}
		f.move(p.Topic, &s, p.Reset)
	case "$ws:goaway":
	default:
		return false // an error: the history cannot be read in time
	}
	return true
}

func (f *follower) handleStory(topic string, offset uint64, m *story) {
	f.topic[topic].add(f.name, step{
		at: now(), kind: delivered, position: broker.Position{Offset: offset},
		story: storyID{m.Publisher, m.Number}, corrupt: m.Topic != topic || m.Sum != m.checksum(),
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.last[topic]
	last.Offset = offset
	f.last[topic] = last
	f.newest[topic] = max(f.newest[topic], m.Begun)
}

func (f *follower) move(topic string, s *step, reset bool) {
	s.at = now()
	f.topic[topic].add(f.name, *s)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last[topic] = s.position
	if reset {
		f.resets++
	}
}

// isLive reports whether the client has received a story of each topic that was begun after a time.
func (f *follower) isLive(after int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for topic := range f.topic {
		if f.newest[topic] <= after {
			return false
		}
	}
	return true
}

// lag describes what the client has not received since a time.
func (f *follower) lag(after int64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for topic := range f.topic {
		if f.newest[topic] <= after {
			lines = append(lines, fmt.Sprintf("%s at %v, %d ms behind", topic, f.last[topic], (after-f.newest[topic])/1e6))
		}
	}
	return fmt.Sprintf("%s on %q: %s", f.name, f.addr, strings.Join(lines, "; "))
}

// A remoteWriter publishes stories over WebSocket, on any node.
type remoteWriter struct {
	name string
	pick func() (addr string, ok bool)
	ws   *websocket.Conn // nil if it has to connect
	next int
}

// publish sends a call. Without an answer, the outcome is unknown.
func (w *remoteWriter) publish(ctx context.Context, m story, key string) (outcome, broker.Position) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if w.ws == nil {
		addr, ok := w.pick()
		if !ok {
			return notStored, broker.Position{}
		}
		ws, err := dial(ctx, addr, w.name)
		if err != nil {
			return notStored, broker.Position{}
		}
		w.ws = ws
	}
	w.next++
	id := fmt.Sprint(w.next)
	request := map[string]any{"type": "WRITE", "meta": map[string]any{"correlationId": id}, "payload": write{m, key}}
	if err := wsjson.Write(ctx, w.ws, request); err != nil {
		w.close()
		return unknown, broker.Position{}
	}
	for {
		m, err := receive(ctx, w.ws, attemptTimeout)
		switch {
		case err != nil:
			w.close()
			return unknown, broker.Position{}
		case m.Meta.CorrelationID != id:
		case m.Type == "WRITTEN":
			return m.Payload.Outcome, broker.Position{Epoch: m.Payload.Epoch, Offset: m.Payload.Offset}
		default:
			return unknown, broker.Position{}
		}
	}
}

func (w *remoteWriter) close() {
	if w.ws != nil {
		_ = w.ws.CloseNow()
		w.ws = nil
	}
}
