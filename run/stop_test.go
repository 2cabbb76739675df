package run_test

import (
	"context"
	cryptorand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// TestStop_FromEveryNodeAtOnceWithTheEndAndTheNextStart stops a run on all nodes while it ends and while another one is
// started: the run has one end, and the next one is untouched.
func TestStop_FromEveryNodeAtOnceWithTheEndAndTheNextStart(t *testing.T) {
	for round := range testscale.Tiers(50, 100, 2000) {
		synctest.Test(t, func(t *testing.T) { stopAtOnce(t, round, memory.NewBroker) })
	}
}

// TestStop_OnRedis does the same on a real server, in real time.
func TestStop_OnRedis(t *testing.T) {
	client := redis.WithNamespace(redistest.Shared(t), "stop-"+cryptorand.Text())
	connect := func() broker.HistoryBroker { return redis.NewBroker(client) }
	for round := range testscale.Tiers(5, 10, 100) {
		stopAtOnce(t, round, connect)
	}
}

func stopAtOnce[B broker.Broker](t *testing.T, round int, newBroker func() B) {
	rng := rand.New(rand.NewPCG(uint64(round), 1)) //nolint:gosec // not for secrets
	b := newBroker()
	all := make([]*run.Runs[token], 3)
	for i := range all {
		r := router.New(&router.Options{Broker: b})
		all[i] = run.New(r, "answer/{chat}", &run.Options[token]{})
		defer func() { assert.NoError(t, r.Shutdown(context.WithoutCancel(t.Context()))) }()
	}
	topic, lasts := fmt.Sprint("answer/", round), time.Duration(rng.IntN(4_000))*time.Microsecond
	first, err := all[rng.IntN(3)].Start(t.Context(), topic, nil, func(ctx context.Context, out *run.Output[token]) error {
		if err := emit(3, nil)(ctx, out); err != nil {
			return err
		}
		select {
		case <-time.After(lasts):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	require.NoError(t, err)
	var wg sync.WaitGroup
	ends := make([]run.Info, 6)
	for i := range ends {
		at := time.Duration(rng.IntN(8_000)) * time.Microsecond
		wg.Go(func() {
			time.Sleep(at)
			var err error
			ends[i], err = all[i%3].Stop(t.Context(), topic, first.ID, "ann")
			assert.NoError(t, err)
		})
	}
	var next run.Info
	wg.Go(func() { next = startNext(t, all[rng.IntN(3)], topic) })
	wg.Wait()
	for _, rs := range all {
		text, end := readTopic(t, rs, topic, first.ID)
		assert.Equal(t, "aaa"[:len(text)], text)
		assert.EqualValues(t, len(text), end.Items)
		assert.Contains(t, []run.State{run.Completed, run.Stopped}, end.State)
		for _, other := range ends {
			assert.Equal(t, end.State, other.State, "every stop and every reader sees the same end")
			assert.Equal(t, end.Items, other.Items)
		}
		text, end = readTopic(t, rs, topic, next.ID)
		assert.Equal(t, "aaa", text, "the next run is untouched")
		assert.Equal(t, run.Completed, end.State)
	}
}

// startNext starts a run as soon as there is no other.
func startNext(t *testing.T, rs *run.Runs[token], topic string) run.Info {
	for {
		info, err := rs.Start(t.Context(), topic, nil, emit(3, nil))
		if errors.CodeOf(err) != errors.Aborted {
			assert.NoError(t, err)
			return info
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// readTopic reads a whole run.
func readTopic(t *testing.T, rs *run.Runs[token], topic, id string) (text string, info run.Info) {
	r, err := rs.Attach(t.Context(), topic, run.From{Run: id})
	require.NoError(t, err)
	defer r.Close()
	for part, err := range r.Parts(t.Context()) {
		require.NoError(t, err)
		text += part.Item.Text
	}
	return text, r.Info()
}

// A lateBroker confirms that a node follows a log a second after it has begun to, as when a connection to Redis is
// being replaced.
type lateBroker struct{ broker.HistoryBroker }

func (b lateBroker) ConnectHistory(h broker.Callbacks, hh broker.HistoryCallbacks) broker.HistoryNode {
	following, published := hh.Following, hh.Published
	var confirmed sync.Map
	hh.Published = func(topic string, p broker.Publication) {
		if _, ok := confirmed.Load(topic); ok {
			published(topic, p)
		}
	}
	hh.Following = func(topic string) {
		time.AfterFunc(time.Second, func() {
			confirmed.Store(topic, true)
			following(topic)
		})
	}
	return b.HistoryBroker.ConnectHistory(h, hh)
}

func TestStop_BeforeTheOwnerFollowsTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.NewBroker()
		owner, other := router.New(&router.Options{Broker: lateBroker{b}}), router.New(&router.Options{Broker: b})
		rs, stopper := run.New[token](owner, "answer/{chat}", nil), run.New[token](other, "answer/{chat}", nil)
		info, err := rs.Start(t.Context(), "answer/1", nil, wait)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		info, err = stopper.Stop(ctx, "answer/1", info.ID, "ann")
		require.NoError(t, err)
		assert.Equal(t, run.Stopped, info.State)
		require.NoError(t, owner.Shutdown(t.Context()))
		require.NoError(t, other.Shutdown(t.Context()))
	})
}
