package run_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/run"
)

// TestResume_HoldsThePermitOfTheUser as soon as the dead node does not hold it any more.
func TestResume_HoldsThePermitOfTheUser(t *testing.T) {
	for name, budget := range map[string]*run.Budget{"without a budget": nil, "with a budget": {Keys: []limit.Key{{"ann"}}, Slice: 10}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testResumeHoldsPermit(t, budget) })
		})
	}
}

func testResumeHoldsPermit(t *testing.T, budget *run.Budget) {
	dying, died := &crash{}, make(chan struct{})
	meter := limit.NewMeter(limit.MaxLease, memory.NewLimiter(limit.PerSecond(1000)))
	permits, broker := memory.NewSemaphore(1), memory.NewBroker()
	goOn := make(chan struct{})
	var all []*run.Runs[token]
	for i := range 2 {
		options := &router.Options{Broker: broker, Logger: slog.New(slog.DiscardHandler)}
		if i == 0 {
			options.Broker = crashingBroker{broker, dying}
		}
		r := router.New(options)
		all = append(all, run.New(r, "answer/{chat}", &run.Options[token]{
			PerUser: permits, Budget: meter, Lease: 3 * time.Second,
			Resume: func(ctx context.Context, out *run.Output[token], items []token) error {
				assert.Equal(t, []token{{"a"}}, items)
				<-goOn
				return out.Emit(token{"b"})
			},
		}))
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Millisecond) // a dead node does not end
			defer cancel()
			_ = r.Shutdown(ctx)
		}()
	}
	ann := &run.StartOptions{User: limit.Key{"ann"}, Budget: budget}
	_, err := all[0].Start(t.Context(), "answer/1", ann, func(_ context.Context, out *run.Output[token]) error {
		assert.NoError(t, out.Emit(token{"a"}))
		<-died // holds its permit so long
		return nil
	})
	require.NoError(t, err)
	time.Sleep(time.Second)
	dying.mu.Lock()
	dying.dead = true
	dying.mu.Unlock()
	for range 10 {
		_, err = all[1].Find(t.Context(), "answer/1", "") // takes the run over when the lease has expired
		require.NoError(t, err)
		time.Sleep(time.Second)
	}
	close(died)
	time.Sleep(2 * permitInterval)

	_, err = all[1].Start(t.Context(), "answer/2", ann, nothing)
	assert.Equal(t, errors.ResourceExhausted, errors.CodeOf(err), "the resumed run is active")
	close(goOn)
	text, end := read(t, all[1], run.From{})
	assert.Equal(t, "ab", text)
	assert.Equal(t, run.Completed, end.State)
	_, err = all[1].Start(t.Context(), "answer/2", ann, nothing)
	require.NoError(t, err)
	synctest.Wait()
}

// permitInterval is how often a resumed run asks for a permit.
const permitInterval = time.Second

// A hookedSemaphore calls hook when it has given a permit.
type hookedSemaphore struct {
	limit.Semaphore

	hook func()
}

func (s *hookedSemaphore) Acquire(ctx context.Context, key limit.Key) (limit.Permit, error) {
	p, err := s.Semaphore.Acquire(ctx, key)
	s.hook()
	return p, err
}

// TestStart_ReleasesThePermitIfTheStoreIsAway for as long as the start tries to withdraw its record.
func TestStart_ReleasesThePermitIfTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut, permits := &crash{}, memory.NewSemaphore(1)
		r := router.New(&router.Options{Broker: crashingBroker{memory.NewBroker(), cut}, Logger: slog.New(slog.DiscardHandler)})
		rs := run.New(r, "answer/{chat}", &run.Options[token]{Lease: 3 * time.Second, PerUser: &hookedSemaphore{permits, func() {
			cut.mu.Lock()
			defer cut.mu.Unlock()
			cut.dead = true
		}}})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := rs.Start(ctx, "answer/1", &run.StartOptions{User: limit.Key{"ann"}}, nothing)
		require.Error(t, err)
		permit, err := permits.Acquire(t.Context(), limit.Key{"ann"})
		require.NoError(t, err)
		assert.NotNil(t, permit.Release, "no run of the user is active")
		ctx, cancel = context.WithTimeout(context.WithoutCancel(t.Context()), time.Millisecond)
		defer cancel()
		_ = r.Shutdown(ctx)
	})
}
