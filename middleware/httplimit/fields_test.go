package httplimit_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/httplimit"
)

func TestNew_FieldsDescribePoliciesAndDecision(t *testing.T) {
	const day = 24 * time.Hour
	second := limit.Description{Name: "second", Limit: 10, Window: 1500 * time.Millisecond}
	perDay := limit.Description{Name: "day", Limit: 5000, Window: day}
	unnamed := limit.Description{Limit: 10, Window: time.Second}
	foreign := limit.Description{Name: "tagesbudget ü", Limit: 20, Window: time.Nanosecond}
	for _, tt := range []struct {
		name             string
		limiter          limit.Limiter
		policies, limits string
	}{
		{
			"one policy", deciding(limit.Decision{Allowed: true, Limit: 10, Remaining: 7, ResetAfter: 400 * time.Millisecond}, second),
			`"second";q=10;w=2`, `"second";r=7;t=1`,
		},
		{
			"all policies, and the one that decided", deciding(limit.Decision{Allowed: true, Limit: 5000, Policy: "day", Remaining: 1, ResetAfter: day}, second, perDay),
			`"second";q=10;w=2, "day";q=5000;w=86400`, `"day";r=1;t=86400`,
		},
		{
			"a rejection refers to the time of Retry-After", deciding(limit.Decision{Limit: 10, Policy: "second", RetryAfter: time.Second, ResetAfter: 2 * time.Second}, second, perDay),
			`"second";q=10;w=2, "day";q=5000;w=86400`, `"second";r=0;t=1`,
		},
		{
			"a policy without a name has that of the options", deciding(limit.Decision{Allowed: true, Limit: 10, Remaining: 3}, unnamed),
			`"api";q=10;w=1`, `"api";r=3;t=0`,
		},
		{
			"several policies without a usable name have different names", deciding(limit.Decision{Allowed: true, Limit: 20, Policy: foreign.Name, Remaining: 3}, unnamed, second, foreign),
			`"api-1";q=10;w=1, "second";q=10;w=2, "api-3";q=20;w=1`, `"api-3";r=3;t=0`,
		},
		{
			"equal names differ", deciding(limit.Decision{Allowed: true, Limit: 5000, Policy: "second", Remaining: 3}, second, limit.Description{Name: "second", Limit: 5000}),
			`"second";q=10;w=2, "api-2";q=5000`, `"api-2";r=3;t=0`,
		},
		{
			"a limiter that describes nothing",
			struct{ limit.Limiter }{deciding(limit.Decision{Allowed: true, Limit: 10, Remaining: 3})},
			`"api";q=10`, `"api";r=3;t=0`,
		},
		{
			"a decision of another policy", deciding(limit.Decision{Allowed: true, Limit: 11, Remaining: 3}, second, perDay),
			`"api";q=11`, `"api";r=3;t=0`,
		},
		{ // RFC 9651, section 3.3.1
			"integers have at most 15 digits", deciding(limit.Decision{Allowed: true, Limit: math.MaxInt64, Remaining: math.MaxInt64, ResetAfter: math.MaxInt64},
				limit.Description{Name: "huge", Limit: math.MaxInt64, Window: math.MaxInt64}),
			`"huge";q=999999999999999;w=9223372037`, `"huge";r=999999999999999;t=9223372037`,
		},
		{
			"a deficit is no negative number", deciding(limit.Decision{Limit: 10, Remaining: -3, RetryAfter: limit.Never, ResetAfter: time.Second}, second),
			`"second";q=10;w=2`, `"second";r=0;t=1`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp := attempt(httplimit.New(tt.limiter, &httplimit.Options{Name: "api"})(ok), "192.0.2.1:1", nil)
			assert.Equal(t, []string{tt.policies}, resp.Header.Values("RateLimit-Policy"))
			assert.Equal(t, []string{tt.limits}, resp.Header.Values("RateLimit"))
		})
	}
}

func TestNew_FieldsOfJointLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := httplimit.New(limit.AllOf(
			memory.NewLimiter(limit.PerSecond(2).Named("second")),
			memory.NewLimiter(limit.Per(3, time.Hour).Named("hour")),
		), nil)(ok)
		for _, want := range []string{`"second";r=1;t=1`, `"second";r=0;t=1`, `"second";r=0;t=1`} {
			resp := attempt(h, "192.0.2.1:1", nil)
			assert.Equal(t, `"second";q=2;w=1, "hour";q=3;w=3600`, resp.Header.Get("RateLimit-Policy"))
			assert.Equal(t, want, resp.Header.Get("RateLimit"))
		}
		time.Sleep(time.Second)
		assert.Equal(t, 200, attempt(h, "192.0.2.1:1", nil).StatusCode)
		rejected := attempt(h, "192.0.2.1:1", nil)
		assert.Equal(t, `"hour";r=0;t=1199`, rejected.Header.Get("RateLimit"))
		assert.Equal(t, "1199", rejected.Header.Get("Retry-After"))
	})
}

func TestNew_TwoLimitsOfAHandlerAddTheirFields(t *testing.T) {
	one := httplimit.New(deciding(limit.Decision{Allowed: true, Limit: 10, Remaining: 7}, limit.Description{Name: "one", Limit: 10}), nil)
	two := httplimit.New(deciding(limit.Decision{Allowed: true, Limit: 20, Remaining: 8}, limit.Description{Name: "two", Limit: 20}), nil)
	resp := attempt(one(two(ok)), "192.0.2.1:1", nil)
	assert.Equal(t, []string{`"one";q=10`, `"two";q=20`}, resp.Header.Values("RateLimit-Policy"))
	assert.Equal(t, []string{`"one";r=7;t=0`, `"two";r=8;t=0`}, resp.Header.Values("RateLimit"))
}

func TestNew_UnknownRetryAfterIsNotSent(t *testing.T) {
	resp := attempt(httplimit.New(deciding(limit.Decision{Limit: 10}), nil)(ok), "192.0.2.1:1", nil)
	assert.Equal(t, 429, resp.StatusCode)
	assert.NotContains(t, resp.Header, "Retry-After")
}
