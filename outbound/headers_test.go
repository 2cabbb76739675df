package outbound_test

import (
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/outbound"
)

// headers builds a header from lines of the form "Name: value".
func headers(lines ...string) http.Header {
	h := http.Header{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

const date = "Date: Tue, 02 Aug 2016 21:23:42 GMT" // 1470173022

func TestParseHeaders(t *testing.T) {
	const unlimited = outbound.Unlimited
	for _, c := range []struct {
		name  string
		code  int
		lines []string
		want  outbound.Status
	}{
		{"no headers", 200, nil, outbound.Status{Limit: unlimited}},
		{"redirect without headers", 304, nil, outbound.Status{Limit: unlimited}},
		{"client error without headers", 401, nil, outbound.Status{}},
		{"bad gateway without headers", 502, nil, outbound.Status{}},
		{
			"Discord's example", 200,
			[]string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1470173023", "X-RateLimit-Reset-After: 1", "X-RateLimit-Bucket: abcd1234"},
			outbound.Status{Limit: 5, ResetAfter: time.Second},
		},
		{"seconds with decimals", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 4", "X-RateLimit-Reset-After: 1.25"}, outbound.Status{Limit: 5, Remaining: 4, ResetAfter: 1250 * time.Millisecond}},
		{"decimals are rounded up", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Reset-After: 0.0000000001"}, outbound.Status{Limit: 5, Remaining: 5, ResetAfter: 1}},
		{"reset after 0", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 0.000"}, outbound.Status{Limit: 5, ResetAfter: 1}},
		{"negative reset", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: -1"}, outbound.Status{Limit: 5}},
		{"reset without decimals may be at the end of its second", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173023"}, outbound.Status{Limit: 5, Remaining: 5, ResetAfter: 2 * time.Second}},
		{"reset with decimals", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173023.123"}, outbound.Status{Limit: 5, Remaining: 5, ResetAfter: 1123 * time.Millisecond}},
		{"reset in the current second", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173022"}, outbound.Status{Limit: 5, Remaining: 5, ResetAfter: time.Second}},
		{"reset in the past", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173021"}, outbound.Status{Limit: 5, Remaining: 5}},
		{"reset without a date", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173023"}, outbound.Status{Limit: 5, Remaining: 5}},
		{"reset in milliseconds", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173023000"}, outbound.Status{Limit: 5, Remaining: 5}},
		{"limit of 0", 200, []string{"X-RateLimit-Limit: 0"}, outbound.Status{Limit: 1}},
		{"remaining above limit", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 9"}, outbound.Status{Limit: 5, Remaining: 5}},
		{"remaining without limit", 200, []string{"X-RateLimit-Remaining: 4"}, outbound.Status{Limit: 5, Remaining: 4}},
		{"malformed limit is ignored", 200, []string{"X-RateLimit-Limit: many", "X-RateLimit-Remaining: -1"}, outbound.Status{Limit: unlimited}},
		{
			"rejection", 429,
			[]string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 0.5", "X-RateLimit-Scope: user", "Retry-After: 64.57"},
			outbound.Status{Limit: 5, ResetAfter: 500 * time.Millisecond, RetryAfter: 64570 * time.Millisecond},
		},
		{"rejection with Reset-After", 429, []string{"X-RateLimit-Reset-After: 0.5"}, outbound.Status{ResetAfter: 500 * time.Millisecond, RetryAfter: 500 * time.Millisecond}},
		{"rejection without headers", 429, nil, outbound.Status{RetryAfter: time.Second}},
		{"rejection until a date", 429, []string{date, "Retry-After: Tue, 02 Aug 2016 21:23:43 GMT"}, outbound.Status{RetryAfter: 2 * time.Second}},
		{"rejection until a past date", 429, []string{date, "Retry-After: Tue, 02 Aug 2016 21:23:00 GMT"}, outbound.Status{RetryAfter: time.Second}},
		{"rejection with a huge Retry-After", 429, []string{"Retry-After: 99999999999999999999"}, outbound.Status{RetryAfter: time.Second}},
		{"rejection with an infinite Retry-After", 429, []string{"Retry-After: Inf"}, outbound.Status{RetryAfter: time.Second}},
		{
			"headers of a global rejection do not describe the route", 429,
			[]string{"X-RateLimit-Global: true", "X-RateLimit-Limit: 50", "X-RateLimit-Remaining: 0", "Retry-After: 1"},
			outbound.Status{RetryAfter: time.Second, Global: true},
		},
		{"global rejection by its scope", 429, []string{"X-RateLimit-Scope: global", "Retry-After: 1"}, outbound.Status{RetryAfter: time.Second, Global: true}},
		{"shared scope belongs to the route", 429, []string{"X-RateLimit-Scope: shared", "Retry-After: 600"}, outbound.Status{RetryAfter: 10 * time.Minute}},
		{"only a 429 can be global", 200, []string{"X-RateLimit-Global: true"}, outbound.Status{Limit: unlimited}},
		{"unavailable with Retry-After", 503, []string{"Retry-After: 120"}, outbound.Status{RetryAfter: 2 * time.Minute}},
		{"unavailable without headers", 503, nil, outbound.Status{}},
		{"accepted with Retry-After", 202, []string{"Retry-After: 120"}, outbound.Status{}},
	} {
		assert.Equal(t, c.want, outbound.ParseHeaders(c.code, headers(c.lines...)), c.name)
	}
}

func FuzzParseHeaders(f *testing.F) {
	f.Add(200, "5", "4", "1470173023", "1.25", "", "", "Tue, 02 Aug 2016 21:23:42 GMT")
	f.Add(429, "5", "0", "1470173023.123", "-0.5", "64.57", "true", "")
	f.Add(503, "-1", "x", "99999999999", "1e9", "Tue, 02 Aug 2016 21:23:43 GMT", "TRUE", "Tue, 02 Aug 2016 21:23:42 GMT")
	f.Fuzz(func(t *testing.T, code int, limit, remaining, reset, resetAfter, retryAfter, global, date string) {
		h := http.Header{}
		for name, value := range map[string]string{
			"X-Ratelimit-Limit": limit, "X-Ratelimit-Remaining": remaining, "X-Ratelimit-Reset": reset,
			"X-Ratelimit-Reset-After": resetAfter, "Retry-After": retryAfter, "X-Ratelimit-Global": global, "Date": date,
		} {
			h.Set(name, value)
		}
		s := outbound.ParseHeaders(code, h)
		for name, d := range map[string]time.Duration{"ResetAfter": s.ResetAfter, "RetryAfter": s.RetryAfter} {
			if d < 0 || d > 31*24*time.Hour {
				t.Errorf("%s is %v", name, d)
			}
		}
		if s.Limit < outbound.Unlimited || s.Remaining < 0 || s.Remaining > max(s.Limit, 0) {
			t.Errorf("got %d remaining of %d", s.Remaining, s.Limit)
		}
		if code == http.StatusTooManyRequests && s.RetryAfter == 0 {
			t.Error("a 429 returned no RetryAfter")
		}
		if s.Limit == outbound.Unlimited && (s.ResetAfter > 0 || s.RetryAfter > 0 || code >= 400) {
			t.Errorf("a response with code %d must not be unlimited: %+v", code, s)
		}
		checkSeconds(t, resetAfter, s)
	})
}

// checkSeconds compares the parsed duration with the exact value of the text.
func checkSeconds(t *testing.T, text string, s outbound.Status) {
	text = strings.TrimSpace(text)
	exact, ok := new(big.Rat).SetString(text)
	if !ok || s.Global || strings.Trim(text, "0123456789.") != "" || strings.HasPrefix(text, ".") || strings.HasSuffix(text, ".") {
		return
	}
	if exact.Cmp(big.NewRat(31*24*3600, 1)) > 0 || strings.Index(text+".", ".") > 10 {
		return
	}
	nanos := new(big.Rat).Mul(exact, big.NewRat(int64(time.Second), 1))
	excess := nanos.Sub(big.NewRat(int64(s.ResetAfter), 1), nanos)
	if excess.Sign() < 0 || excess.Cmp(big.NewRat(1, 1)) > 0 {
		t.Errorf("%q was parsed as %v", text, s.ResetAfter)
	}
}
