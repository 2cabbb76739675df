package router_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

// A lateStore makes the calls of one node wait, before they take effect and before they return.
type lateStore struct {
	*memory.Broker

	claims *claimLog
	rng    *rand.Rand // guarded by claims.mu
}

// A claimLog has the records of sessions in the order in which they were stored.
type claimLog struct {
	mu      sync.Mutex // held while a record is stored
	entries []*claimEntry
}

type claimEntry struct {
	key        string
	ConnID     string    `json:"connId"`
	Generation uint64    `json:"generation"`
	answered   time.Time // zero if the connection has no answer
}

func (b *lateStore) ConnectHistory(handler broker.Callbacks, histories broker.HistoryCallbacks) broker.HistoryNode {
	return &lateSession{b.Broker.ConnectHistory(handler, histories), b}
}

type lateSession struct {
	broker.HistoryNode

	store *lateStore
}

// wait waits for up to two seconds, and every other time not at all.
func (s *lateSession) wait(ctx context.Context) error {
	s.store.claims.mu.Lock()
	d := time.Duration(s.store.rng.Int64N(int64(2 * time.Second)))
	late := s.store.rng.IntN(2) == 0
	s.store.claims.mu.Unlock()
	if !late {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errors.Errorf(errors.OutcomeUnknown, "the answer is late")
	}
}

func (s *lateSession) ReadAll(ctx context.Context, b broker.Batch) ([]broker.BatchPage, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.HistoryNode.ReadAll(ctx, b)
}

func (s *lateSession) LoadValue(ctx context.Context, key string) (broker.Value, error) {
	if err := s.wait(ctx); err != nil {
		return broker.Value{}, err
	}
	value, err := s.HistoryNode.LoadValue(ctx, key)
	if waiting := s.wait(ctx); waiting != nil {
		return broker.Value{}, waiting
	}
	return value, err
}

func (s *lateSession) StoreValue(ctx context.Context, key string, data []byte, version uint64, lifetime time.Duration) (uint64, error) {
	return s.change(ctx, key, func() (uint64, error) { return s.HistoryNode.StoreValue(ctx, key, data, version, lifetime) })
}

func (s *lateSession) PatchValue(ctx context.Context, key string, p broker.Patch, version uint64, lifetime time.Duration) (uint64, error) {
	return s.change(ctx, key, func() (uint64, error) { return s.HistoryNode.PatchValue(ctx, key, p, version, lifetime) })
}

// change logs what is stored.
func (s *lateSession) change(ctx context.Context, key string, store func() (uint64, error)) (uint64, error) {
	if err := s.wait(ctx); err != nil {
		return 0, err
	}
	entry, version, err := s.commit(ctx, key, store)
	if waiting := s.wait(ctx); waiting != nil {
		return 0, waiting
	}
	if entry != nil {
		s.store.claims.mu.Lock()
		entry.answered = time.Now()
		s.store.claims.mu.Unlock()
	}
	return version, err
}

func (s *lateSession) commit(ctx context.Context, key string, store func() (uint64, error)) (*claimEntry, uint64, error) {
	s.store.claims.mu.Lock()
	defer s.store.claims.mu.Unlock()
	version, err := store()
	if err != nil {
		return nil, 0, err
	}
	value, err := s.HistoryNode.LoadValue(ctx, key)
	if err != nil || value.Version == 0 {
		return nil, version, err // it has been deleted
	}
	entry := &claimEntry{key: key}
	if err := json.Unmarshal(value.Data, entry); err != nil || entry.Generation == 0 {
		return nil, version, err // it is no record of a session
	}
	s.store.claims.entries = append(s.store.claims.entries, entry)
	return entry, version, nil
}

// owner returns the connection that had the session before a moment, as far as any connection could
// know: the one with the latest generation of those that had an answer.
func (l *claimLog) owner(key string, before time.Time) (latest claimEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.key == key && e.Generation > latest.Generation && !e.answered.IsZero() && e.answered.Before(before) {
			latest = *e
		}
	}
	return latest
}

// generation returns the latest generation of a connection.
func (l *claimLog) generation(key, connID string) (latest uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.key == key && e.ConnID == connID {
			latest = max(latest, e.Generation)
		}
	}
	return latest
}

// A raceClient is one of those that want the same session.
type raceClient struct {
	*sessionClient

	owns, asked bool // it has an answer with a token, or waits for one
	token       string
}

// An ownerRace is a session that several connections resume while the store is late.
type ownerRace struct {
	t       *testing.T
	rng     *rand.Rand
	nodes   [2]*router.Router
	claims  *claimLog
	key     string
	clients []*raceClient
	served  *string // the connection that has handled the latest message

	moves, superseded, rejected int
}

// TestResume_OneConnectionOwnsASession lets up to four connections on two nodes resume a session
// while every call of the store may wait, before it takes effect and before it returns. No
// connection handles a message after a later owner knows that it has the session.
func TestResume_OneConnectionOwnsASession(t *testing.T) {
	t.Parallel()
	const perBubble = 50
	var total ownerRace
	for seed := range testscale.Tiers[uint64](4, 6, 200) {
		synctest.Test(t, func(t *testing.T) {
			r := newOwnerRace(t, seed)
			defer r.end()
			for range perBubble {
				r.run()
			}
			total.moves, total.superseded, total.rejected = total.moves+r.moves, total.superseded+r.superseded, total.rejected+r.rejected
		})
		if t.Failed() {
			t.Logf("seed %d", seed)
			return
		}
	}
	t.Logf("%d resumes, %d superseded, %d rejected", total.moves, total.superseded, total.rejected)
	assert.Greater(t, total.moves, perBubble)
	assert.Greater(t, total.superseded, perBubble)
	assert.Greater(t, total.rejected, perBubble)
}

func newOwnerRace(t *testing.T, seed uint64) *ownerRace {
	r := &ownerRace{t: t, rng: rand.New(rand.NewPCG(seed, 7)), claims: &claimLog{}, served: new(string)}
	shared := memory.NewBroker()
	for i := range r.nodes {
		store := &lateStore{shared, r.claims, rand.New(rand.NewPCG(seed, uint64(i)))}
		r.nodes[i] = newSessionRouter(store, nil)
		router.On(r.nodes[i], func(ctx *router.Context, _ Blob) error {
			*r.served = ctx.Conn().ID()
			return nil
		})
	}
	return r
}

// run opens a session, and lets others resume it for ten seconds. Afterwards, at most one
// connection is left.
func (r *ownerRace) run() {
	r.open()
	for range r.rng.IntN(3) + 1 {
		r.clients = append(r.clients, &raceClient{sessionClient: dialSession(r.t, r.nodes[r.rng.IntN(2)], "ann")})
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		time.Sleep(time.Duration(r.rng.Int64N(int64(300 * time.Millisecond))))
		r.step(time.Until(end) > 4*time.Second)
	}
	time.Sleep(supersededWait)
	r.step(false)
	var owners []string
	for _, c := range r.clients {
		if c.owns && c.isOpen() {
			owners = append(owners, c.conn.ID())
		}
	}
	require.LessOrEqual(r.t, len(owners), 1, "connections that have the session")
	r.closeAll()
}

func (r *ownerRace) closeAll() {
	for _, c := range r.clients {
		if c.isOpen() {
			c.Close()
		}
	}
	synctest.Wait()
	r.clients = nil
}

// end waits until nothing is stored any more.
func (r *ownerRace) end() {
	r.closeAll()
	time.Sleep(4 * resumeWithin)
}

// supersededWait is as long as a superseded connection may stay open.
const supersededWait = 5 * time.Second

func (r *ownerRace) open() {
	first := dialSession(r.t, r.nodes[r.rng.IntN(2)], "ann")
	for { // the store may be too late for the greeting
		frame := first.call("$ws:hello", `{"session":true}`)
		var welcome struct {
			Session *struct{ Token string } `json:"session"`
		}
		require.NoError(r.t, json.Unmarshal(frame.Payload, &welcome))
		if welcome.Session != nil {
			r.key = "session " + welcome.Session.Token[:26]
			r.clients = append(r.clients, &raceClient{sessionClient: first, owns: true, token: welcome.Session.Token})
			return
		}
	}
}

func (c *raceClient) isOpen() bool {
	synctest.Wait()
	return c.conn.Context().Err() == nil
}

// step reads what has arrived, lets clients resume, and lets all that have had the session send a
// message.
func (r *ownerRace) step(resume bool) {
	for _, c := range r.clients {
		r.receive(c)
	}
	for _, c := range r.clients {
		switch {
		case !c.isOpen():
		case c.owns:
			r.probe(c)
		case resume && !c.asked && r.rng.IntN(4) == 0:
			c.asked = true
			token := r.clients[r.rng.IntN(len(r.clients))].token
			if token == "" {
				token = r.clients[0].token
			}
			c.calls++
			c.SendText(fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"r%d","timeoutMs":4000},"payload":{"token":%q,"topics":[{"topic":"feed/a","positions":true}]}}`, c.calls, token))
		}
	}
}

func (r *ownerRace) receive(c *raceClient) {
	for synctest.Wait(); c.Pending() > 0; synctest.Wait() {
		frame := c.Next()
		switch frame.Type {
		case "$ws:resumed":
			var answer resumed
			require.NoError(r.t, json.Unmarshal(frame.Payload, &answer))
			c.owns, c.asked, c.token = true, false, answer.Session.Token
			r.moves++
			if r.rng.IntN(2) == 0 && c.isOpen() {
				c.acknowledge()
			}
		case "RPC_ERROR":
			c.asked = false
			r.rejected++
		}
	}
}

// probe sends a message of the application, which is handled only if no later owner knows.
func (r *ownerRace) probe(c *raceClient) {
	*r.served = ""
	now := time.Now()
	c.SendText(`{"type":"BLOB","payload":{"text":"1"}}`)
	synctest.Wait()
	owner, own := r.claims.owner(r.key, now), r.claims.generation(r.key, c.conn.ID())
	if *r.served == "" {
		r.superseded++
		require.Less(r.t, own, r.latest().Generation, "a message was rejected although no other connection has the session")
		return
	}
	require.GreaterOrEqual(r.t, own, owner.Generation, "a connection of generation %d handles a message after %v", own, owner)
}

// latest returns the record as it is stored.
func (r *ownerRace) latest() claimEntry {
	r.claims.mu.Lock()
	defer r.claims.mu.Unlock()
	for _, e := range slices.Backward(r.claims.entries) {
		if e.key == r.key {
			return *e
		}
	}
	return claimEntry{}
}

// TestResume_ResumesThatAreCutShortAreBounded resumes a session again and again, and closes each
// connection before it has an answer.
func TestResume_ResumesThatAreCutShortAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5
		r := newSessionRouter(nil, func(o *router.Options) {
			o.Limits.SessionsPerUser = limit
			o.Resume.OnSessionEnd = func(router.SessionEnd) {}
		})
		wait := func(*router.Context, router.TopicMatch) error { time.Sleep(time.Second); return nil }
		router.Topic(r, "slow/{name}", &router.TopicOptions{Authorize: wait})
		first := dialSession(t, r, "ann").hello()
		for range 50 {
			c := dialSession(t, r, "ann")
			c.SendText(fmt.Sprintf(`{"type":"$ws:resume","meta":{"correlationId":"r"},"payload":{"token":%q,"topics":[{"topic":"slow/a"}]}}`, first.token))
			synctest.Wait()
			c.Abort()
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		assert.LessOrEqual(t, r.AwaySessions(), limit+1)
		assert.LessOrEqual(t, r.SessionOwners(), limit+1)
		dialSession(t, r, "ann").resume(first.token, "")
		synctest.Wait()
		assert.Zero(t, r.AwaySessions())
		assert.Equal(t, 1, r.SessionOwners())
	})
}
