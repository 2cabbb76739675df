package memstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/memstore"
	"github.com/penstock-go/penstock/internal/testscale"
)

// A modelTopic is the history of a topic, written as naively as possible.
type modelTopic struct {
	age   time.Duration
	used  time.Time
	epoch string
	ended map[string]bool      // epochs that had publications and are forgotten
	all   []broker.Publication // every publication of the epoch
	kept  int                  // how many of them, the newest ones, were not removed by Messages or Bytes
	fence uint64               // the highest of the epoch
	last  bool                 // the topic is closed
	keys  map[string]int       // the index in all of the publication that was stored last with the key
}

func (m *modelTopic) append(a broker.Append, now time.Time) (broker.Appended, errors.Code) {
	if i, ok := m.keys[a.IdempotencyKey]; ok && a.IdempotencyKey != "" && now.Sub(m.all[i].At) <= broker.IdempotencyTime {
		return broker.Appended{Position: m.all[i].Position, Duplicate: true}, ""
	}
	if m.last {
		return broker.Appended{}, errors.FailedPrecondition
	}
	if a.Fence < m.fence {
		return broker.Appended{}, errors.Aborted
	}
	m.fence, m.last = a.Fence, a.Last
	position := broker.Position{Epoch: m.epoch, Offset: uint64(len(m.all) + 1)}
	m.all = append(m.all, broker.Publication{Position: position, At: now, Packet: a.Packet, StateKey: a.StateKey, Removed: a.Removed})
	m.keys[a.IdempotencyKey] = len(m.all) - 1
	bytes := int64(0)
	kept := 0
	for i := len(m.all) - 1; i >= 0 && kept < max(a.Retention.Messages, 1) && kept <= m.kept; i-- {
		bytes += int64(len(m.all[i].Packet))
		if a.Retention.Bytes > 0 && bytes > a.Retention.Bytes {
			break
		}
		kept++
	}
	m.kept = kept
	return broker.Appended{Position: position}, ""
}

func (m *modelTopic) read(q broker.Query, now time.Time) broker.Page {
	page := broker.Page{Position: broker.Position{Epoch: m.epoch, Offset: uint64(len(m.all))}, Closed: m.last}
	for _, p := range m.all[len(m.all)-m.kept:] {
		offset := p.Position.Offset
		if offset > q.After && (q.Before == 0 || offset < q.Before) && now.Sub(p.At) <= q.Retention.Age {
			page.Publications = append(page.Publications, p)
		}
	}
	if n := len(page.Publications) - max(q.Limit, 0); n > 0 && q.Backward {
		page.Publications = page.Publications[n:]
	} else if n > 0 {
		page.Publications = page.Publications[:max(q.Limit, 0)]
	}
	if len(page.Publications) == 0 {
		page.Publications = nil
	}
	return page
}

func (m *modelTopic) state(age time.Duration, now time.Time) (state []broker.Publication) {
	latest := map[string]broker.Publication{}
	for _, p := range m.all {
		if p.StateKey != "" {
			latest[p.StateKey] = p
		}
	}
	for _, p := range latest {
		if !p.Removed && now.Sub(p.At) <= age {
			state = append(state, p)
		}
	}
	slices.SortFunc(state, func(a, b broker.Publication) int { return int(a.Position.Offset) - int(b.Position.Offset) })
	return state
}

// A modelNode is a node with what it has received and should have received.
type modelNode struct {
	*memstore.Node
	follows        map[string]bool
	got, want      map[string][]broker.Publication
	followed, asks map[string]int // calls of Following and of Follow
}

// A model compares a hub with its topics after every operation.
type model struct {
	t      *testing.T
	random *rand.Rand
	nodes  []*modelNode
	topics map[string]*modelTopic
	counts map[string]int // how often something has happened
}

// TestHub_BehavesLikeModel runs random operations in virtual time, one after the other.
func TestHub_BehavesLikeModel(t *testing.T) {
	counts := map[string]int{}
	for seed := range testscale.Tiers[uint64](8, 8, 40) {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(t, seed, counts)
			for range 900 {
				m.step()
				synctest.Wait()
				for i, n := range m.nodes {
					require.Equal(t, n.want, n.got, "publications of node %d", i)
					require.Equal(t, n.asks, n.followed, "calls of Following on node %d", i)
				}
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, event := range []string{"duplicate", "expired key", "page", "trimmed page", "state", "second part of a state", "new epoch", "new epoch without publications", "kept epoch for a day", "delivery", "ABORTED", "FAILED_PRECONDITION", "closed page"} {
		assert.Greater(t, counts[event], 20, event)
	}
}

func newModel(t *testing.T, seed uint64, counts map[string]int) *model {
	m := &model{t: t, random: rand.New(rand.NewPCG(seed, 1)), topics: map[string]*modelTopic{}, counts: counts}
	hub := &memstore.Hub{}
	for range 3 {
		n := &modelNode{
			follows: map[string]bool{}, got: map[string][]broker.Publication{}, want: map[string][]broker.Publication{},
			followed: map[string]int{}, asks: map[string]int{},
		}
		n.Node = hub.Connect(broker.HistoryCallbacks{
			Published: func(topic string, p broker.Publication) { n.got[topic] = append(n.got[topic], p) },
			Following: func(topic string) { n.followed[topic]++ },
		})
		m.nodes = append(m.nodes, n)
	}
	for i := range 5 {
		ages := []time.Duration{time.Second, time.Minute, time.Hour, 36 * time.Hour}
		m.topics["topic "+strconv.Itoa(i)] = &modelTopic{age: ages[m.random.IntN(len(ages))], ended: map[string]bool{}, keys: map[string]int{}}
	}
	return m
}

func (m *model) step() {
	name := "topic " + strconv.Itoa(m.random.IntN(len(m.topics)))
	n := m.nodes[m.random.IntN(len(m.nodes))]
	switch m.random.IntN(20) {
	case 0:
		durations := []time.Duration{time.Second, time.Minute, 5 * time.Minute, time.Hour, 25 * time.Hour, 62 * time.Hour}
		time.Sleep(time.Duration(m.random.Int64N(int64(durations[m.random.IntN(len(durations))]))))
	case 1:
		n.Follow(name)
		n.follows[name] = true
		n.asks[name]++
	case 2:
		n.Unfollow(name)
		n.follows[name] = false
	case 3, 4, 5, 6, 7, 8:
		m.read(n, name)
	case 9:
		m.readState(n, name)
	default:
		if name == "topic 0" { // has no publications
			m.read(n, name)
			return
		}
		m.append(n, name)
	}
}

// use checks the position that a call returned. A topic has its epoch for at least a day after its
// last publication has expired, and after its last use. If it has no publication, the epoch may end, at
// the position of every node. An epoch that had publications does not return.
func (m *model) use(name string, got broker.Position) *modelTopic {
	topic := m.topics[name]
	unused := time.Since(topic.used)
	require.False(m.t, topic.ended[got.Epoch], "an epoch has returned")
	switch {
	case topic.epoch == "":
		topic.epoch = got.Epoch
	case got.Epoch != topic.epoch && len(topic.all) == 0:
		m.counts["new epoch without publications"]++
		topic.epoch = got.Epoch
	case got.Epoch != topic.epoch:
		require.Greater(m.t, unused, 24*time.Hour+topic.age, "a topic has lost its position")
		m.counts["new epoch"]++
		topic.ended[topic.epoch] = true
		*topic = modelTopic{age: topic.age, epoch: got.Epoch, ended: topic.ended, keys: map[string]int{}}
	case unused > 24*time.Hour:
		m.counts["kept epoch for a day"]++
	}
	topic.used = time.Now()
	require.NotEmpty(m.t, got.Epoch)
	return topic
}

func (m *model) append(n *modelNode, name string) {
	topic := m.topics[name]
	a := broker.Append{
		Topic:     name,
		Retention: broker.Retention{Messages: m.random.IntN(20), Age: topic.age, Bytes: int64(m.random.IntN(3)) * 40},
		Packet:    fmt.Append(nil, m.random.IntN(1000000)),
	}
	if m.random.IntN(20) == 0 {
		a.Packet = make([]byte, 100) // larger than Bytes
	}
	if m.random.IntN(2) == 0 {
		a.IdempotencyKey = "key " + strconv.Itoa(m.random.IntN(10))
	}
	if m.random.IntN(2) == 0 {
		a.StateKey, a.Removed = "state "+strconv.Itoa(m.random.IntN(5)), m.random.IntN(4) == 0
	}
	switch a.Fence = topic.fence; m.random.IntN(6) {
	case 0:
		a.Fence++
	case 1:
		a.Fence /= 2
	}
	a.Last = name == "topic 1" && m.random.IntN(20) == 0
	got, err := n.Append(context.Background(), a)
	if err != nil { // the topic exists: a new one refuses nothing
		topic.used = time.Now()
		want, code := topic.append(a, topic.used)
		require.Equal(m.t, want, got)
		require.Equal(m.t, code, errors.CodeOf(err))
		m.counts[string(code)]++
		return
	}
	topic = m.use(name, got.Position)
	_, known := topic.keys[a.IdempotencyKey]
	want, code := topic.append(a, time.Now())
	require.Empty(m.t, code)
	require.Equal(m.t, want, got)
	if got.Duplicate {
		m.counts["duplicate"]++
		return
	}
	if known && a.IdempotencyKey != "" {
		m.counts["expired key"]++
	}
	for _, other := range m.nodes {
		if other.follows[name] {
			m.counts["delivery"]++
			other.want[name] = append(other.want[name], topic.all[len(topic.all)-1])
		}
	}
}

func (m *model) read(n *modelNode, name string) {
	topic := m.topics[name]
	q := broker.Query{
		Topic:     name,
		Retention: broker.Retention{Messages: m.random.IntN(20), Age: topic.age / time.Duration(1+m.random.IntN(3)), Bytes: int64(m.random.IntN(50))},
		Limit:     m.random.IntN(25) - 1,
		Backward:  m.random.IntN(2) == 0,
	}
	top := len(topic.all) + 3
	if m.random.IntN(2) == 0 {
		q.After = uint64(top - m.random.IntN(min(top, 30)))
	}
	if m.random.IntN(2) == 0 {
		q.Before = uint64(top - m.random.IntN(min(top, 30)))
	}
	got, err := n.Read(context.Background(), q)
	require.NoError(m.t, err)
	before := *topic
	topic = m.use(name, got.Position)
	if previous := (broker.Position{Epoch: before.epoch}); before.epoch != "" && len(before.all) == 0 && topic.epoch != before.epoch && time.Since(before.used) < 24*time.Hour {
		require.Equal(m.t, previous, got.Previous, "an epoch without publications has ended")
	}
	require.False(m.t, topic.ended[got.Previous.Epoch], "where the epoch ended is not known")
	require.Zero(m.t, got.Previous.Offset)
	got.Previous = broker.Position{}
	want := topic.read(q, time.Now())
	require.Equal(m.t, want, got, "%+v", q)
	if got.Closed {
		m.counts["closed page"]++
	}
	if len(want.Publications) > 0 {
		m.counts["page"]++
		if want.Publications[0].Position.Offset > q.After+1 {
			m.counts["trimmed page"]++
		}
	}
}

func (m *model) readState(n *modelNode, name string) {
	age := m.topics[name].age / time.Duration(1+m.random.IntN(3))
	q := broker.StateQuery{Topic: name, Retention: broker.Retention{Age: age}, MaxBytes: 1 + m.random.IntN(100)}
	got, err := n.ReadState(context.Background(), q)
	require.NoError(m.t, err)
	for q.Cursor = got.Next; q.Cursor != ""; {
		part, err := n.ReadState(context.Background(), q)
		require.NoError(m.t, err)
		got.Publications = append(got.Publications, part.Publications...)
		q.Cursor = part.Next
		m.counts["second part of a state"]++
	}
	topic := m.use(name, got.Position)
	slices.SortFunc(got.Publications, func(a, b broker.Publication) int { return int(a.Position.Offset) - int(b.Position.Offset) })
	want := topic.state(age, time.Now())
	require.Equal(m.t, len(topic.all), int(got.Position.Offset))
	require.ElementsMatch(m.t, want, got.Publications)
	if len(want) > 0 {
		m.counts["state"]++
	}
}
