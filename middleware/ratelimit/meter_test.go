package ratelimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// An Ask is a question to a language model, whose answer has a number of tokens.
type Ask struct {
	Estimate int64 `json:"estimate"`
	Used     int64 `json:"used"`
}

func (Ask) MessageType() string { return "ASK" }

type Answer struct{}

func (Answer) MessageType() string { return "ANSWER" }

// newModel returns a router with a meter for its only call, and what OnLimitExceeded receives.
func newModel() (*router.Router, *[]router.LimitExceeded) {
	meter := limit.NewMeter(time.Minute, memory.NewLimiter(limit.PerMinute(100).Named("per-minute")), memory.NewLimiter(limit.PerHour(1000).Named("per-hour")))
	var reports []router.LimitExceeded
	r := router.New(&router.Options{
		AnnounceLimits:  ratelimit.AnnounceMeter(meter, ratelimit.KeyPerConn),
		OnLimitExceeded: func(l router.LimitExceeded) { reports = append(reports, l) },
	})
	router.RPC(r, func(ctx *router.Context, ask Ask) (Answer, error) {
		key := limit.Key{"conn", ctx.Conn().ID()}
		d, err := meter.Reserve(ctx, ask.Estimate, key)
		if err != nil {
			return Answer{}, err
		}
		if err := ratelimit.Exceeded(d, ask.Estimate); err != nil {
			return Answer{}, err
		}
		return Answer{}, meter.Settle(ctx, d.Receipt, ask.Used, key)
	})
	return r, &reports
}

func TestExceeded_ReachesClientAndHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, reports := newModel()
		client := routertest.Dial(t, r)
		require.Equal(t, Answer{}, routertest.Call[Answer](client, Ask{Estimate: 50, Used: 350}))
		err := routertest.CallError(client, Ask{Estimate: 10})
		assert.Equal(t, errors.ResourceExhausted, err.Code)
		assert.Equal(t, 156*time.Second, err.RetryAfter)
		assert.Equal(t, "per-minute", errors.DetailsOf[errors.LimitDetails](err).Policy)
		synctest.Wait() // the hook runs after the answer
		never := routertest.CallError(client, Ask{Estimate: 101})
		assert.Equal(t, errors.FailedPrecondition, never.Code)
		synctest.Wait()
		require.Len(t, *reports, 2)
		assert.EqualValues(t, 10, (*reports)[0].Observed)
		assert.EqualValues(t, 100, (*reports)[0].Limit)
		time.Sleep(err.RetryAfter)
		routertest.Call[Answer](client, Ask{Estimate: 10, Used: 10})
		client.Close()
	})
	assert.NoError(t, ratelimit.Exceeded(limit.Decision{Allowed: true}, 1))
}

func TestAnnounceMeter_CostIsUnknown(t *testing.T) {
	meter := limit.NewMeter(time.Minute, memory.NewLimiter(limit.PerMinute(100).Named("per-minute")), memory.NewLimiter(limit.PerHour(1000)))
	announced := ratelimit.AnnounceMeter(meter, ratelimit.KeyPerConn, ratelimit.KeyPerUser)(router.IngressContext{ConnID: "c"})
	require.Len(t, announced, 1, "a policy without a name is not announced")
	assert.Equal(t, "per-minute", announced[0].Name)
	assert.EqualValues(t, -1, announced[0].Cost)
	assert.Equal(t, router.ScopeConnection, announced[0].Scope)
	assert.Panics(t, func() { ratelimit.AnnounceMeter(meter) })
	assert.Panics(t, func() {
		ratelimit.AnnounceMeter(meter, ratelimit.KeyPerConn, ratelimit.KeyPerConn, ratelimit.KeyPerConn)
	})
}
