package outbound_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/outbound"
)

// TestParseHeaders_Gateways parses what gateways, frameworks and APIs send.
func TestParseHeaders_Gateways(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		code  int
		lines []string
		want  outbound.Status
	}{
		"Kong": {
			200,
			[]string{"RateLimit-Limit: 10", "RateLimit-Remaining: 4", "RateLimit-Reset: 47", "X-RateLimit-Limit-Minute: 10", "X-RateLimit-Remaining-Minute: 4", "X-RateLimit-Limit-Hour: 1000", "X-RateLimit-Remaining-Hour: 994"},
			outbound.Status{Limit: 10, Remaining: 4, ResetAfter: 48 * time.Second},
		},
		"Kong, rejected": {
			429,
			[]string{"RateLimit-Limit: 10", "RateLimit-Remaining: 0", "RateLimit-Reset: 13", "Retry-After: 13"},
			outbound.Status{Limit: 10, ResetAfter: 14 * time.Second, RetryAfter: 14 * time.Second},
		},
		"Kong 1": {
			200,
			[]string{"X-RateLimit-Limit-Minute: 10", "X-RateLimit-Remaining-Minute: 0", "X-RateLimit-Limit-Hour: 1000", "X-RateLimit-Remaining-Hour: 90"},
			outbound.Status{Limit: 10, ResetAfter: time.Minute},
		},
		"Kong Enterprise": {
			200,
			[]string{"X-RateLimit-Limit-30: 10", "X-RateLimit-Remaining-30: 0"},
			outbound.Status{Limit: 10, ResetAfter: 30 * time.Second},
		},
		"Kong, by the units of an answer": {
			200, []string{"X-RateLimit-Limit-Videos-Minute: 10", "X-RateLimit-Remaining-Videos-Minute: 4"}, outbound.Status{},
		},
		"express-rate-limit, legacy": {
			200,
			[]string{date, "X-RateLimit-Limit: 100", "X-RateLimit-Remaining: 99", "X-RateLimit-Reset: 1470173082"},
			outbound.Status{Limit: 100, Remaining: 99, ResetAfter: 61 * time.Second},
		},
		"express-rate-limit, draft 6": {
			200,
			[]string{"RateLimit-Policy: 100;w=60", "RateLimit-Limit: 100", "RateLimit-Remaining: 99", "RateLimit-Reset: 60"},
			outbound.Status{Limit: 100, Remaining: 99, ResetAfter: time.Minute},
		},
		"express-rate-limit, draft 7": {
			200,
			[]string{"RateLimit-Policy: 100;w=60", "RateLimit: limit=100, remaining=99, reset=42"},
			outbound.Status{Limit: 100, Remaining: 99, ResetAfter: 43 * time.Second},
		},
		"express-rate-limit, draft 7, rejected": {
			429,
			[]string{"RateLimit-Policy: 100;w=60", "RateLimit: limit=100, remaining=0, reset=0", "Retry-After: 0"},
			outbound.Status{Limit: 100, ResetAfter: time.Second, RetryAfter: time.Second},
		},
		"express-rate-limit, draft 8": {
			200,
			[]string{`RateLimit-Policy: "100-in-1min"; q=100; w=60; pk=:ZWJhNjE1OGFkODdl:`, `RateLimit: "100-in-1min"; r=99; t=42`},
			outbound.Status{Limit: 100, Remaining: 99, ResetAfter: 42 * time.Second},
		},
		"rate-limiter-flexible": {
			200,
			[]string{date, "X-RateLimit-Limit: 4", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: Tue Aug 02 2016 21:23:52 GMT+0000 (Coordinated Universal Time)"},
			outbound.Status{Limit: 4, ResetAfter: 11 * time.Second},
		},
		"ISO time": {
			200,
			[]string{date, "X-RateLimit-Limit: 4", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 2016-08-02T21:23:52.250Z"},
			outbound.Status{Limit: 4, ResetAfter: 10250 * ms},
		},
		"ISO time in another zone": {
			200,
			[]string{date, "X-RateLimit-Limit: 4", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 2016-08-02T23:23:52+02:00"},
			outbound.Status{Limit: 4, ResetAfter: 11 * time.Second},
		},
		"ISO time in the past": {200, []string{date, "X-RateLimit-Limit: 4", "X-RateLimit-Reset: 2016-08-02T21:23:41Z"}, outbound.Status{Limit: 4, Remaining: 4}},
		"AspNetCoreRateLimit": {
			200,
			[]string{date, "X-Rate-Limit-Limit: 1m", "X-Rate-Limit-Remaining: 9", "X-Rate-Limit-Reset: 2016-08-02T21:24:42.1234567Z"},
			outbound.Status{Limit: 10, Remaining: 9, ResetAfter: 60*time.Second + 123456700},
		},
		"milliseconds since 1970": {
			200,
			[]string{date, "X-RateLimit-Limit: 4", "X-RateLimit-Remaining: 3", "X-RateLimit-Reset: 1470173032500"},
			outbound.Status{Limit: 4, Remaining: 3, ResetAfter: 10501 * ms},
		},
		"seconds from now": {
			200,
			[]string{"X-RateLimit-Limit: 4", "X-RateLimit-Remaining: 3", "X-RateLimit-Reset: 30"},
			outbound.Status{Limit: 4, Remaining: 3, ResetAfter: 31 * time.Second},
		},
		"Reddit": {
			200,
			[]string{"X-Ratelimit-Remaining: 598.0", "X-Ratelimit-Used: 2", "X-Ratelimit-Reset: 287"},
			outbound.Status{Limit: 599, Remaining: 598, ResetAfter: 288 * time.Second},
		},
		"Discord": {
			200,
			[]string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 4", "X-RateLimit-Reset: 1470173023.123", "X-RateLimit-Reset-After: 0.3", "X-RateLimit-Bucket: abcd1234"},
			outbound.Status{Limit: 5, Remaining: 4, ResetAfter: 300 * ms},
		},
		"GitHub": {
			200,
			[]string{date, "X-Ratelimit-Limit: 5000", "X-Ratelimit-Remaining: 4999", "X-Ratelimit-Reset: 1470176622", "X-Ratelimit-Used: 1", "X-Ratelimit-Resource: core"},
			outbound.Status{Limit: 5000, Remaining: 4999, ResetAfter: time.Hour + time.Second},
		},
		"GitHub, secondary limit": {403, []string{"Retry-After: 60"}, outbound.Status{RetryAfter: time.Minute}},
		"GitLab": {
			429,
			[]string{date, "RateLimit-Limit: 60", "RateLimit-Name: throttle", "RateLimit-Observed: 67", "RateLimit-Remaining: 0", "RateLimit-Reset: 1470173052", "RateLimit-ResetTime: Tue, 02 Aug 2016 21:24:12 GMT", "Retry-After: 30"},
			outbound.Status{Limit: 60, ResetAfter: 31 * time.Second, RetryAfter: 31 * time.Second},
		},
		"X": {
			200,
			[]string{date, "x-rate-limit-limit: 15", "x-rate-limit-remaining: 14", "x-rate-limit-reset: 1470173922"},
			outbound.Status{Limit: 15, Remaining: 14, ResetAfter: 15*time.Minute + time.Second},
		},
		"Stripe":           {200, []string{"Request-Id: req_1"}, outbound.Status{Limit: outbound.Unlimited}},
		"Stripe, rejected": {429, []string{"Stripe-Rate-Limited-Reason: endpoint-rate"}, outbound.Status{RetryAfter: time.Second}},
		"Docker Hub":       {200, []string{"ratelimit-limit: 100;w=21600", "ratelimit-remaining: 76;w=21600"}, outbound.Status{Limit: 100, Remaining: 76}},
		"Docker Hub, exhausted": {
			429,
			[]string{"ratelimit-limit: 100;w=21600", "ratelimit-remaining: 0;w=21600"},
			outbound.Status{Limit: 100, ResetAfter: 6 * time.Hour, RetryAfter: 6 * time.Hour},
		},
		"OpenAI": {
			200,
			[]string{"x-ratelimit-limit-requests: 60", "x-ratelimit-remaining-requests: 0", "x-ratelimit-reset-requests: 6m0s", "x-ratelimit-limit-tokens: 150000", "x-ratelimit-remaining-tokens: 149984", "x-ratelimit-reset-tokens: 120ms"},
			outbound.Status{Limit: 60, ResetAfter: 6 * time.Minute},
		},
		"OpenAI, without tokens": {
			200,
			[]string{"x-ratelimit-limit-requests: 60", "x-ratelimit-remaining-requests: 59", "x-ratelimit-reset-requests: 1s", "x-ratelimit-limit-tokens: 150000", "x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 120ms"},
			outbound.Status{Limit: 150000, ResetAfter: 120 * ms},
		},
		"Anthropic": {
			200,
			[]string{date, "anthropic-ratelimit-requests-limit: 50", "anthropic-ratelimit-requests-remaining: 49", "anthropic-ratelimit-requests-reset: 2016-08-02T21:23:44Z", "anthropic-ratelimit-input-tokens-limit: 40000", "anthropic-ratelimit-input-tokens-remaining: 39000"},
			outbound.Status{Limit: 50, Remaining: 49, ResetAfter: 3 * time.Second},
		},
		"drafts 0 to 4": {
			200,
			[]string{"RateLimit-Limit: 10, 10;w=1, 1000;w=3600;comment=\"fixed window\"", "RateLimit-Remaining: 7", "RateLimit-Reset: 1"},
			outbound.Status{Limit: 10, Remaining: 7, ResetAfter: time.Second},
		},
		"drafts 5 and 6": {
			200,
			[]string{"RateLimit-Policy: 10;w=1, 1000;w=3600", "RateLimit-Limit: 1000", "RateLimit-Remaining: 7", "RateLimit-Reset: 1200"},
			outbound.Status{Limit: 1000, Remaining: 7, ResetAfter: 1201 * time.Second},
		},
		"drafts 5 to 7, only the policy": {200, []string{"RateLimit-Policy: 100;w=60, 1000;w=3600"}, outbound.Status{Limit: 100, Remaining: 100}},
		"draft 7, without the limit":     {200, []string{"RateLimit: remaining=9, reset=60"}, outbound.Status{Limit: 10, Remaining: 9, ResetAfter: 61 * time.Second}},
		"draft 7, malformed":             {200, []string{"RateLimit: limit=10, remaining=x, reset=y"}, outbound.Status{Limit: 10, Remaining: 10}},
		"drafts 8 to 10": {
			200,
			[]string{`RateLimit-Policy: "burst";q=100;w=60,"daily";q=1000;w=86400`, `RateLimit: "burst";r=50;t=30`},
			outbound.Status{Limit: 100, Remaining: 50, ResetAfter: 30 * time.Second},
		},
		"two families, one malformed": {
			200,
			[]string{"RateLimit-Limit: many", "X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 4", "X-RateLimit-Reset-After: 1.5"},
			outbound.Status{Limit: 5, Remaining: 4, ResetAfter: 1500 * ms},
		},
		"two families, one without a reset": {
			200,
			[]string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 4", "X-Rate-Limit-Reset: 9"},
			outbound.Status{Limit: 5, Remaining: 4, ResetAfter: 10 * time.Second},
		},
		"several lines": {
			200,
			[]string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 4", "X-RateLimit-Remaining: 1", "X-RateLimit-Reset-After: 1.5"},
			outbound.Status{Limit: 5, Remaining: 1, ResetAfter: 1500 * ms},
		},

		// What is not understood is a limit nevertheless.
		"Riot":                         {200, []string{"X-App-Rate-Limit: 20:1,100:120", "X-App-Rate-Limit-Count: 1:1,1:120"}, outbound.Status{}},
		"Azure":                        {200, []string{"x-ms-ratelimit-remaining-subscription-reads: 11999"}, outbound.Status{}},
		"Amazon":                       {200, []string{"x-amzn-RateLimit-Limit: 0.5"}, outbound.Status{}},
		"Zendesk, without the rest":    {200, []string{"X-Rate-Limit: 700"}, outbound.Status{}},
		"a reset that is no time":      {200, []string{"X-RateLimit-Reset: soon"}, outbound.Status{}},
		"a reset between both formats": {200, []string{date, "X-RateLimit-Reset: 99999999"}, outbound.Status{}},
	} {
		assert.Equal(t, c.want, outbound.ParseHeaders(c.code, headers(c.lines...)), name)
	}
}

func FuzzParseHeaders_Families(f *testing.F) {
	f.Add(200, uint8(0), "10, 10;w=60", "4", "47", "100;w=60")
	f.Add(429, uint8(1), "5", "0", "1470173032500", "")
	f.Add(200, uint8(2), "1m", "9.5", "2016-08-02T21:24:42.1234567Z", "10;w=1, 1000;w=3600")
	f.Add(503, uint8(3), "4", "0", "Tue Aug 02 2016 21:23:52 GMT+0000 (Coordinated Universal Time)", `"a";q=9`)
	f.Add(200, uint8(4), "60", "0", "6m0s", "")
	f.Add(200, uint8(5), "limit=10, remaining=4", "reset=3", "", "10;w=60")
	names := [][3]string{
		{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"},
		{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"},
		{"X-Rate-Limit-Limit", "X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"},
		{"X-RateLimit-Limit-Minute", "X-RateLimit-Remaining-Minute", "X-RateLimit-Reset-Minute"},
		{"X-RateLimit-Limit-Requests", "X-RateLimit-Remaining-Tokens", "X-RateLimit-Reset-Requests"},
		{"RateLimit", "RateLimit", "Retry-After"},
	}
	f.Fuzz(func(t *testing.T, code int, family uint8, limit, remaining, reset, policy string) {
		h := headers(date, "RateLimit-Policy: "+policy)
		for i, value := range []string{limit, remaining, reset} {
			h.Add(names[int(family)%len(names)][i], value)
		}
		s := outbound.ParseHeaders(code, h)
		if s.Remaining < 0 || s.Remaining > max(s.Limit, 0) || s.Limit == outbound.Unlimited && int(family)%len(names) != 5 {
			t.Errorf("%d remain of %d", s.Remaining, s.Limit)
		}
		if min(s.ResetAfter, s.RetryAfter) < 0 || max(s.ResetAfter, s.RetryAfter) > 31*24*time.Hour {
			t.Errorf("invalid durations: %+v", s)
		}
	})
}
