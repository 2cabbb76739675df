//go:build unix

package faults_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/router"
)

// A follower is a client that follows all topics while it moves between nodes.
type follower struct {
	r    *recovery
	line *line

	mu      sync.Mutex // guards what follows
	ledgers map[string]*ledger
	members map[string]bool // of full/a
}

// A ledger is what a follower knows of a topic. When all is quiet, it must be a part of the history up to its end: a notice
// removes what is lost, and nothing else may be missing, repeated or in another order.
type ledger struct {
	keys          map[uint64]string // by offset: since the last reset
	first, last   uint64            // offset before the first publication, and of the last one
	begun         int64             // by the newest story
	ended, resets int               // notices
	problems      []string
}

// receive adds a publication, which must be the next one.
func (l *ledger) receive(offset uint64, m *story) {
	if l.last != 0 && offset != l.last+1 {
		l.problems = append(l.problems, m.Key+" does not follow the one before")
	}
	if len(l.keys) == 0 {
		l.first = offset - 1
	}
	l.last, l.begun = offset, max(l.begun, m.Begun)
	l.keys[offset] = m.Key
}

// lose follows a notice.
func (l *ledger) lose(loss client.Loss) {
	switch {
	case loss.Ended != nil:
		l.ended++
		for offset := loss.Position.Offset + 1; offset <= l.last; offset++ {
			delete(l.keys, offset)
		}
	case loss.From == 0:
		l.resets++
		clear(l.keys)
	case loss.From > l.last+1 || loss.From <= l.last:
		l.problems = append(l.problems, "a notice covers what is not lost")
	}
	l.last = loss.Position.Offset
	l.first = min(l.first, l.last)
	if len(l.keys) == 0 {
		l.first = l.last
	}
}

// check compares the ledger with the history, whose keys have the offsets up to top.
func (l *ledger) check(history map[uint64]string, top uint64) []string {
	problems := l.problems
	if l.last != top {
		problems = append(problems, "does not reach the end")
	}
	for offset, key := range l.keys {
		if stored, ok := history[offset]; ok && stored != key {
			problems = append(problems, key+" is not what the history has")
		}
	}
	return problems
}

// follow starts a follower of all topics.
func (r *recovery) follow(name string) *follower {
	f := &follower{r: r, ledgers: map[string]*ledger{}, members: map[string]bool{}}
	var c *client.Client
	c, f.line = connect(r.t, r.nodes[0].addr, name, client.Options{PingInterval: time.Second})
	for _, topic := range r.topics {
		l := &ledger{keys: map[uint64]string{}}
		f.ledgers[topic] = l
		opts := &client.SubscribeOptions{
			Handlers: []client.Handler{client.HandlerFor(func(m story, received *client.Received) {
				f.mu.Lock()
				defer f.mu.Unlock()
				l.receive(received.Position.Offset, &m)
			})},
			OnLoss: func(loss client.Loss) {
				f.mu.Lock()
				defer f.mu.Unlock()
				l.lose(loss)
			},
		}
		if topic == "full/a" {
			opts.OnPresence = f.present
		}
		_, err := c.Subscribe(within(r.t), topic, opts)
		require.NoError(r.t, err)
	}
	r.followers = append(r.followers, f)
	return f
}

func (f *follower) present(joined, left []client.Member, reset bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if reset {
		clear(f.members)
	}
	for _, m := range left {
		delete(f.members, m.ConnID)
	}
	for _, m := range joined {
		f.members[m.ConnID] = true
	}
}

// move moves the follower to another node every one or two seconds, until ctx is done.
func (f *follower) move(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		if !f.r.away.Load() {
			f.line.move(f.r.pick(rng))
		}
		for pause := 100 + rng.IntN(3000); pause > 0 || f.r.stay.Load(); pause -= 10 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// isLive reports whether the follower has received a story of each topic that was begun after a time.
func (f *follower) isLive(after int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.ledgers {
		if l.begun <= after {
			return false
		}
	}
	return true
}

// seesAll reports whether the follower knows each follower as one member.
func (f *follower) seesAll(r *recovery) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.members) == len(r.followers)
}

// check reads the histories, waits until the followers have reached their ends, and compares.
func (r *recovery) check(s *scenario) {
	spec := nodeSpec{Durability: r.durability}
	if r.sentinel != nil {
		spec.Redis = r.sentinel.Address()
	} else {
		spec.Redis.Addr = r.server.Addr
	}
	reader := newRecoveryRouter(&spec)
	defer func() { assert.NoError(r.t, reader.Shutdown(context.Background())) }()
	deliveries := 0
	for _, topic := range r.topics {
		history, top := readHistory(r.t, reader, topic)
		r.checkStored(topic, history, s.keeps || strings.HasPrefix(topic, "safe/"))
		known := history // with what only followers have
		for _, f := range r.followers {
			l := f.ledgers[topic]
			r.eventually("end of "+topic, func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return l.last >= top
			})
			assert.Empty(r.t, l.check(known, top), topic)
			deliveries += len(l.keys)
			maps.Copy(known, l.keys)
			if s.keeps && !strings.HasPrefix(topic, "brief/") {
				assert.Zero(r.t, l.resets, "%s: clients that were not recovered", topic)
			}
		}
	}
	r.t.Logf("%d stories, %d failed attempts, %d deliveries, %d ends of epochs, %d resets", len(r.attempts), r.failed, deliveries, r.ended(), r.resets())
}

// checkStored checks that a history has every key once, only what was sent, and if the store keeps what it acknowledges, all
// of that.
func (r *recovery) checkStored(topic string, history map[uint64]string, keeps bool) {
	offsets := map[string]uint64{}
	for offset, key := range history {
		assert.NotContains(r.t, offsets, key, "%s: stored twice", topic)
		offsets[key] = offset
	}
	for key, tries := range r.attempts {
		offset, ok := offsets[key]
		mayBe := false
		for _, try := range tries {
			mayBe = mayBe || try.Outcome != notStored
			if keeps && try.Outcome == stored && try.Topic == topic && !strings.HasPrefix(topic, "brief/") {
				assert.Equal(r.t, try.Offset, offset, "%s: %s was acknowledged", topic, key)
			}
		}
		assert.False(r.t, ok && !mayBe, "%s: %s was not stored, its publisher knows", topic, key)
	}
}

func readHistory(t *testing.T, r *router.Router, topic string) (keys map[uint64]string, top uint64) {
	t.Helper()
	keys = map[uint64]string{}
	for after := uint64(0); ; {
		var messages []router.StoredMessage
		var current broker.Position
		require.EventuallyWithT(t, func(c *assert.CollectT) { // a master may have failed
			var err error
			messages, current, err = r.ReadHistory(t.Context(), topic, broker.Query{After: after, Limit: 1000})
			require.NoError(c, err)
		}, wait, 50*time.Millisecond)
		for _, m := range messages {
			var s story
			require.NoError(t, m.Decode(&s))
			keys[m.Position.Offset] = s.Key
			after = m.Position.Offset
		}
		if len(messages) == 0 || after == current.Offset {
			return keys, current.Offset
		}
	}
}

func TestLedger_FindsWhatIsWrong(t *testing.T) {
	history := map[uint64]string{1: "a", 2: "b", 3: "c"}
	received := func(l *ledger, from uint64, keys ...string) {
		for i, key := range keys {
			l.receive(from+uint64(i), &story{Key: key})
		}
	}
	end := client.Position{Offset: 2}
	for name, c := range map[string]struct {
		follow func(*ledger)
		fails  bool
	}{
		"all":             {func(l *ledger) { received(l, 1, "a", "b", "c") }, false},
		"from the middle": {func(l *ledger) { received(l, 2, "b", "c") }, false},
		"epoch ended": {func(l *ledger) {
			received(l, 1, "a", "b", "x")
			l.lose(client.Loss{Ended: &end, Position: end})
			received(l, 3, "c")
		}, false},
		"reset": {func(l *ledger) { received(l, 1, "x", "y"); l.lose(client.Loss{Position: end}); received(l, 3, "c") }, false},
		"lost": {func(l *ledger) {
			received(l, 1, "a")
			l.lose(client.Loss{From: 2, To: 2, Position: end})
			received(l, 3, "c")
		}, false},
		"lost what was received": {func(l *ledger) {
			received(l, 1, "a", "b")
			l.lose(client.Loss{From: 2, To: 2, Position: end})
			received(l, 3, "c")
		}, true},
		"missing":        {func(l *ledger) { received(l, 1, "a"); received(l, 3, "c") }, true},
		"repeated":       {func(l *ledger) { received(l, 1, "a", "b"); received(l, 2, "b", "c") }, true},
		"other order":    {func(l *ledger) { received(l, 1, "b", "a", "c") }, true},
		"without notice": {func(l *ledger) { received(l, 1, "a", "b", "x") }, true},
		"behind":         {func(l *ledger) { received(l, 1, "a", "b") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &ledger{keys: map[uint64]string{}}
			c.follow(l)
			assert.Equal(t, c.fails, len(l.check(history, 3)) > 0, "%v", l.problems)
		})
	}
}
