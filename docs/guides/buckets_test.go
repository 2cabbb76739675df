package guides_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// joint draws two users of a tenant.
func joint(t *testing.T) []byte {
	users := memory.NewLimiter(limit.PerSecond(1).Burst(4).Named("user"))
	tenants := memory.NewLimiter(limit.PerSecond(1).Burst(8).Named("tenant"))
	tenant := func(router.IngressContext) limit.Key { return limit.Key{"tenant", "acme"} }
	admit := ratelimit.NewAll([]ratelimit.Rule{{Limiter: users, Key: ratelimit.KeyPerUser}, {Limiter: tenants, Key: tenant}}, nil)
	ann, bob := newClient(t, "ann", admit), newClient(t, "bob", admit)
	var annLevel, bobLevel, tenantLevel steps
	play(16*second, func(at time.Duration) {
		if pace(at, second, 8*second, second/4) {
			ann.call(at)
		}
		if pace(at, 5*second, 15*second, second/2) {
			bob.call(at)
		}
		annLevel.add(at, ann.tokens(users))
		bobLevel.add(at, bob.tokens(users))
		d, err := limit.Consume(t.Context(), tenants, limit.Key{"tenant", "acme"}, 0)
		require.NoError(t, err)
		tenantLevel.add(at, d.Remaining)
	})
	p := newPicture("NewAll: a call needs tokens of its user and of its tenant, and a rejected call takes neither",
		"1/s burst 4 per user, 1/s burst 8 per tenant; two users of one tenant", 16*second)
	for _, user := range []struct {
		client *client
		level  steps
	}{{ann, annLevel}, {bob, bobLevel}} {
		p.heading("%s", user.client.in.Identity.UserID)
		p.level("tokens", user.level, 4, 36)
		p.dots("admitted", user.client.admitted)
		p.crosses("rejected", user.client.rejected)
		p.gap()
	}
	p.heading("their tenant")
	p.level("tokens", tenantLevel, 8, 48)
	return p.svg(second)
}

// keep draws important messages and others in one bucket.
func keep(t *testing.T) []byte {
	limiter := memory.NewLimiter(limit.PerSecond(2).Burst(10))
	admit := ratelimit.New(limiter, &ratelimit.Options{Key: ratelimit.KeyPerUser, Keep: func(in router.IngressContext) int64 {
		if in.Type == "PREVIEW" {
			return 4
		}
		return 0
	}})
	say, preview := newClient(t, "ann", admit), newClient(t, "ann", admit)
	preview.in.Type = "PREVIEW"
	var level steps
	play(14*second, func(at time.Duration) {
		if pace(at, 2*second, 12*second, second/4) {
			preview.call(at)
		}
		if pace(at, 6*second, 9*second, second/2) {
			say.call(at)
		}
		level.add(at, say.tokens(limiter))
	})
	p := newPicture("Keep: previews leave four tokens to chat messages",
		"policy 2/s burst 10; a client that sends 4 previews per second", 14*second)
	top := p.y
	p.level("tokens", level, 10, 80)
	p.line(top+80*px-4*8*px, "4")
	p.heading("chat messages")
	p.dots("admitted", say.admitted)
	p.crosses("rejected", say.rejected)
	p.gap()
	p.heading("previews")
	p.dots("admitted", preview.admitted)
	p.crosses("rejected", preview.rejected)
	return p.svg(second)
}

// partial draws a sender that takes what its bucket holds.
func partial(t *testing.T) []byte {
	limiter := memory.NewLimiter(limit.PerSecond(4).Burst(20))
	var level, part steps
	var calls []time.Duration
	play(14*second, func(at time.Duration) {
		if pace(at, second, 12*second, second) {
			granted, _, err := limit.ConsumeUpTo(t.Context(), limiter, limit.Key{"user", "", "ann"}, 8)
			require.NoError(t, err)
			calls = append(calls, at)
			part.add(at, granted)
		}
		d, err := limit.Consume(t.Context(), limiter, limit.Key{"user", "", "ann"}, 0)
		require.NoError(t, err)
		if pace(at, 0, 14*second, second/2) {
			level.add(at, d.Remaining)
		}
		if pace(at, 0, 14*second, second) && at >= 12*second {
			part.add(at, 0)
		}
	})
	p := newPicture("ConsumeUpTo grants what the bucket holds",
		"policy 4/s burst 20; every second, a worker asks for up to 8 tokens", 14*second)
	p.level("tokens", level, 20, 80)
	p.gap()
	p.level("granted", append(steps{{0, 0}}, part...), 8, 48)
	p.dots("calls", calls)
	return p.svg(second)
}

// policyChange draws a bucket whose policy changes twice.
func policyChange(t *testing.T) []byte {
	large, small := limit.PerSecond(2).Burst(12).Named("chat"), limit.PerSecond(1).Burst(4).Named("chat")
	limiter := memory.NewLimiter(large)
	c := newClient(t, "ann", ratelimit.New(limiter, perUser()))
	var level, missing steps
	perToken := second / 2
	change := func(policy limit.Policy, every time.Duration) {
		before := missingTokens(c, limiter, perToken)
		require.NoError(t, limiter.SetPolicy(policy))
		perToken = every
		require.Equal(t, before, missingTokens(c, limiter, perToken))
	}
	play(30*second, func(at time.Duration) {
		switch at {
		case 5 * second:
			change(small, second)
		case 20 * second:
			change(large, second/2)
		}
		if pace(at, 2*second, 5*second, second/5) || pace(at, 5*second, 30*second, second/2) {
			c.call(at)
		}
		level.add(at, c.tokens(limiter))
		missing.add(at, missingTokens(c, limiter, perToken))
	})
	p := newPicture("A change of the policy does not change how many tokens a bucket is missing",
		"2/s burst 12, but 1/s burst 4 from 5 s to 20 s; 5 calls per second until 5 s, then 2", 30*second)
	top := p.y
	p.y += 20 * px
	p.level("missing", missing, 12, 72)
	p.gap()
	p.level("tokens", level, 12, 72)
	p.dots("admitted", c.admitted)
	p.crosses("rejected", c.rejected)
	p.shade("plan", top, 5*second, 20*second, "1/s burst 4")
	return p.svg(5 * second)
}

// missingTokens returns how many tokens have to return until the bucket of a client is full. It can be more
// than its capacity.
func missingTokens(c *client, limiter limit.Limiter, perToken time.Duration) int64 {
	d, err := limit.Inspect(c.t.Context(), limiter, c.key())
	require.NoError(c.t, err)
	return int64((d.ResetAfter + perToken - 1) / perToken)
}
