package main

import (
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/router"
)

// newMeter returns the budget of each user: a bucket per minute and a quota per day, of which an
// answer takes from both, or from none.
func newMeter(cfg config) *limit.Meter {
	perMinute := limit.PerMinute(cfg.perMinute).Named("tokens per minute")
	perDay := limit.QuotaPolicy{Name: "tokens per day", Max: cfg.perDay, Period: limit.Day}
	if cfg.redis == nil {
		return limit.NewMeter(limit.MaxLease, memory.NewLimiter(perMinute), memory.NewQuota(perDay))
	}
	return limit.NewMeter(limit.MaxLease, redis.NewLimiter(cfg.redis, perMinute), redis.NewQuota(cfg.redis, perDay))
}

func userKey(user string) limit.Key { return limit.Key{"user", user} }

// getBudget answers what is left to the user, and when it returns.
func (s *server) getBudget(ctx *router.Context, _ GetBudget) (Budget, error) {
	var b Budget
	for i, description := range s.meter.Describe() {
		d, err := limit.Inspect(ctx, s.meter.Limiters()[i], userKey(ctx.Identity().UserID))
		if err != nil {
			return b, err
		}
		returns := int64((d.ResetAfter + time.Millisecond - 1) / time.Millisecond)
		b.Limits = append(b.Limits, BudgetLimit{description.Name, d.Remaining, d.Limit, returns})
	}
	return b, nil
}
