package guides_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
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
)

var update = flag.Bool("update", false, "update the pictures")

// drawings are the pictures of the documents, by their files.
var drawings = map[string]func(*testing.T) []byte{
	"../images/pipeline.svg": pipeline,

	"pictures/overview.svg": overview, "pictures/token-bucket.svg": tokenBucket, "pictures/cooldown.svg": cooldown,
	"pictures/all.svg": all, "pictures/max-wait.svg": maxWait, "pictures/in-flight.svg": inFlight, "pictures/tiers.svg": tiers,
	"pictures/block.svg": block, "pictures/window-border.svg": windowBorder, "pictures/quota.svg": quota,
	"pictures/joint.svg": joint, "pictures/keep.svg": keep, "pictures/partial.svg": partial,
	"pictures/policy-change.svg": policyChange,

	"pictures/positions.svg": positions, "pictures/reconnecting.svg": reconnecting, "pictures/session.svg": session,
	"pictures/node-failure.svg": nodeFailure,
}

// TestPictures draws what limiters, routers and clients do in virtual time, and fails if the pictures
// of the documents differ. With -update it writes the pictures.
func TestPictures(t *testing.T) {
	var documents []byte
	for _, pattern := range []string{"*.md", "../*.md"} {
		paths, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			documents = append(documents, text...)
		}
	}
	for file, draw := range drawings {
		t.Run(filepath.Base(file), func(t *testing.T) {
			var svg []byte
			synctest.Test(t, func(t *testing.T) { svg = draw(t) })
			if *update {
				require.NoError(t, os.WriteFile(file, svg, 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), string(svg), "the picture is not current; see -update")
			described := `!\[[^\]]{30,}\]\([^)]*\b` + regexp.QuoteMeta(filepath.Base(file)) + `\)`
			assert.Regexp(t, described, string(documents), "a document contains the picture, with a description")
		})
	}
}

const second = time.Second

// play calls step 40 times per second of span, each time after all goroutines are blocked.
func play(span time.Duration, step func(at time.Duration)) {
	const tick = 25 * time.Millisecond
	for at := time.Duration(0); at < span; at += tick {
		synctest.Wait()
		step(at)
		time.Sleep(tick)
	}
}

// steps are the values of a number over time.
type steps []struct {
	at time.Duration
	n  int64
}

func (s *steps) add(at time.Duration, n int64) {
	if len(*s) == 0 || (*s)[len(*s)-1].n != n {
		*s = append(*s, struct {
			at time.Duration
			n  int64
		}{at, n})
	}
}

// pace reports whether a client calls at a time, if it calls at this interval in [from, to).
func pace(at, from, to, every time.Duration) bool {
	return at >= from && at < to && (at-from)%every == 0
}

// A client is a user and the decisions about its calls.
type client struct {
	t                  *testing.T
	in                 router.IngressContext
	admit              router.IngressFunc
	admitted, rejected []time.Duration
	rejection          *router.LimitExceeded // of the last call; nil if it was admitted
}

func newClient(t *testing.T, user string, admit router.IngressFunc) *client {
	return &client{t: t, in: router.IngressContext{Type: "SAY", Identity: router.Identity{UserID: user}}, admit: admit}
}

func (c *client) key() limit.Key { return ratelimit.KeyPerUser(c.in) }

// call sends a message.
func (c *client) call(at time.Duration) {
	err := c.admit(c.t.Context(), c.in)
	c.rejection, _ = errors.AsType[*router.LimitExceeded](err)
	switch {
	case err == nil:
		c.admitted = append(c.admitted, at)
	case c.rejection != nil:
		c.rejected = append(c.rejected, at)
	default:
		assert.NoError(c.t, err)
	}
}

// tokens returns the number of tokens in the client's bucket.
func (c *client) tokens(limiter limit.Limiter) int64 {
	d, err := limit.Inspect(c.t.Context(), limiter, c.key())
	require.NoError(c.t, err)
	return d.Remaining
}

func perUser() *ratelimit.Options { return &ratelimit.Options{Key: ratelimit.KeyPerUser} }

func tokenBucket(t *testing.T) []byte {
	policy := limit.PerSecond(2).Burst(6)
	limiter := memory.NewLimiter(policy)
	admit := ratelimit.New(limiter, perUser())
	flood, steady := newClient(t, "flood", admit), newClient(t, "steady", admit)
	var floodLevel, steadyLevel steps
	play(12*second, func(at time.Duration) {
		if pace(at, 2*second, 7*second, second/8) {
			flood.call(at)
		}
		if pace(at, second/2, 12*second, second) {
			steady.call(at)
		}
		floodLevel.add(at, flood.tokens(limiter))
		steadyLevel.add(at, steady.tokens(limiter))
	})
	p := newPicture("A token bucket slows a flood down, and does not affect steady clients",
		"policy "+policy.String()+", a bucket for each user", 12*second)
	p.heading("a flood of 8 calls per second: %d admitted, %d rejected", len(flood.admitted), len(flood.rejected))
	p.level("tokens", floodLevel, 6, 66)
	p.dots("admitted", flood.admitted)
	p.crosses("rejected", flood.rejected)
	p.gap()
	p.heading("a steady client, 1 call per second: %d admitted, %d rejected", len(steady.admitted), len(steady.rejected))
	p.level("tokens", steadyLevel, 6, 66)
	p.dots("admitted", steady.admitted)
	return p.svg(second)
}

func cooldown(t *testing.T) []byte {
	policy := limit.CooldownPolicy{Max: 5, Window: 10 * second, Penalty: 15 * second}
	start := time.Now()
	var began, lasts time.Duration
	limiter := memory.NewCooldown(policy, func(p limit.Penalty) { began, lasts = time.Since(start), p.RetryAfter })
	c := newClient(t, "ann", ratelimit.New(limiter, perUser()))
	var count steps
	play(40*second, func(at time.Duration) {
		if pace(at, second, 11*second, 3*second) || pace(at, 11*second, 16*second, second/2) ||
			pace(at, 20*second, 25*second, 2*second) || pace(at, 30*second, 41*second, 3*second) {
			c.call(at)
		}
		n, err := limiter.Count(t.Context(), c.key())
		require.NoError(t, err)
		count.add(at, n)
	})
	p := newPicture("Cooldown: a client that exceeds the limit is rejected until its penalty ends",
		"at most 5 calls in any 10 seconds, or a penalty of 15 seconds, which further calls do not extend", 40*second)
	top := p.y
	p.y += 20 * px
	p.level("calls in 10 s", count, 5, 75)
	p.dots("admitted", c.admitted)
	p.crosses("rejected", c.rejected)
	p.shade("penalty", top, began, began+lasts, "penalty: %v", lasts)
	return p.svg(5 * second)
}

func all(t *testing.T) []byte {
	perSecond := memory.NewLimiter(limit.PerSecond(2).Named("second"))
	perDay := memory.NewLimiter(limit.Per(24, 24*time.Hour).Named("day"))
	c := newClient(t, "ann", ratelimit.New(limit.AllOf(perSecond, perDay), perUser()))
	var secondLevel, dayLevel steps
	var bySecond, byDay []time.Duration
	play(18*second, func(at time.Duration) {
		if pace(at, second, 17*second, second/4) {
			c.call(at)
			switch {
			case c.rejection != nil && c.rejection.Limit == 24:
				byDay = append(byDay, at)
			case c.rejection != nil:
				bySecond = append(bySecond, at)
			}
		}
		secondLevel.add(at, c.tokens(perSecond))
		dayLevel.add(at, c.tokens(perDay))
	})
	p := newPicture("AllOf: a call needs tokens of both buckets, and a rejected call takes from neither",
		"2 per second and 24 per day; a client that calls 4 times per second", 18*second)
	p.heading("bucket per second")
	p.level("tokens", secondLevel, 2, 36)
	p.crosses("rejected", bySecond)
	p.gap()
	p.heading("bucket per day")
	p.level("tokens", dayLevel, 24, 72)
	p.crosses("rejected", byDay)
	p.gap()
	p.dots("admitted", c.admitted)
	return p.svg(second)
}

func tiers(t *testing.T) []byte {
	free := memory.NewLimiter(limit.PerMinute(10).Burst(5).Named("free"))
	pro := memory.NewLimiter(limit.PerMinute(30).Burst(15).Named("pro"))
	plan := "free"
	c := newClient(t, "ann", ratelimit.Tiers(func(router.IngressContext) string { return plan },
		map[string]limit.Limiter{"free": free, "pro": pro}, perUser()))
	var freeLevel, proLevel steps
	isPro := func(at time.Duration) bool {
		return at >= 5*second && at < 15*second || at >= 20*second && at < 25*second
	}
	play(30*second, func(at time.Duration) {
		plan = "free"
		if isPro(at) {
			plan = "pro"
		}
		if pace(at, second, 30*second, second/2) {
			c.call(at)
		}
		freeLevel.add(at, c.tokens(free))
		proLevel.add(at, c.tokens(pro))
	})
	p := newPicture("Tiers: an admitted call is charged in all tiers, so changing tiers grants no tokens",
		"free: 10/m burst 5, pro: 30/m burst 15; a user who calls twice per second and changes tiers", 30*second)
	top := p.y
	p.y += 20 * px
	p.level("pro tokens", proLevel, 15, 75)
	p.gap()
	p.level("free tokens", freeLevel, 5, 35)
	p.dots("admitted", c.admitted)
	p.crosses("rejected", c.rejected)
	p.shade("plan", top, 5*second, 15*second, "pro")
	p.shade("plan", top, 20*second, 25*second, "pro")
	return p.svg(5 * second)
}

func block(t *testing.T) []byte {
	limiter := memory.NewLimiter(limit.PerSecond(1).Burst(4))
	c := newClient(t, "ann", ratelimit.New(limiter, perUser()))
	var level steps
	play(30*second, func(at time.Duration) {
		switch at {
		case 5 * second:
			require.NoError(t, limiter.Block(t.Context(), c.key(), 8*second))
		case 18 * second:
			require.NoError(t, limiter.Block(t.Context(), c.key(), time.Hour))
		case 24 * second:
			require.NoError(t, limiter.Reset(t.Context(), c.key()))
		}
		if pace(at, second/4, 30*second, second/2) {
			c.call(at)
		}
		level.add(at, c.tokens(limiter))
	})
	p := newPicture("A block rejects all calls until it ends, or until Reset ends it",
		"policy 1/s burst 4; a user who calls twice per second", 30*second)
	top := p.y
	p.y += 20 * px
	p.level("tokens", level, 4, 64)
	p.dots("admitted", c.admitted)
	p.crosses("rejected", c.rejected)
	p.shade("penalty", top, 5*second, 13*second, "Block for 8 s")
	p.shade("penalty", top, 18*second, 24*second, "Block for 1 h")
	p.at(top, 24*second, "Reset")
	return p.svg(5 * second)
}
