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

// headers are lines of "Name: value".
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
	const none = outbound.Unlimited
	for _, c := range []struct {
		name  string
		code  int
		lines []string
		want  outbound.Status
	}{
		{"none", 200, nil, outbound.Status{Limit: none}},
		{"a redirect without any", 304, nil, outbound.Status{Limit: none}},
		{"a failure without any", 401, nil, outbound.Status{}},
		{"a broken gateway", 502, nil, outbound.Status{}},
		{
			"Discord's example", 200,
			[]string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1470173023", "X-RateLimit-Reset-After: 1", "X-RateLimit-Bucket: abcd1234"},
			outbound.Status{Limit: 5, ResetAfter: time.Second},
		},
		{"seconds with decimals", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 4", "X-RateLimit-Reset-After: 1.25"}, outbound.Status{Limit: 5, Remaining: 4, ResetAfter: 1250 * time.Millisecond}},
		{"rounds up", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Reset-After: 0.0000000001"}, outbound.Status{Limit: 5, Remaining: 5, ResetAfter: 1}},
		{"a window that ends now", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 0.000"}, outbound.Status{Limit: 5, ResetAfter: 1}},
		{"a negative one", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: -1"}, outbound.Status{Limit: 5}},
		{"a whole reset may be in that second", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173023"}, outbound.Status{Limit: 5, Remaining: 5, ResetAfter: 2 * time.Second}},
		{"a reset with decimals", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173023.123"}, outbound.Status{Limit: 5, Remaining: 5, ResetAfter: 1123 * time.Millisecond}},
		{"a reset in this second", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173022"}, outbound.Status{Limit: 5, Remaining: 5, ResetAfter: time.Second}},
		{"a reset in the past", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173021"}, outbound.Status{Limit: 5, Remaining: 5}},
		{"a reset without a date", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173023"}, outbound.Status{Limit: 5, Remaining: 5}},
		{"a reset in milliseconds", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173023000"}, outbound.Status{Limit: 5, Remaining: 5}},
		{"nothing remains of nothing", 200, []string{"X-RateLimit-Limit: 0"}, outbound.Status{Limit: 1}},
		{"more remains than there is", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 9"}, outbound.Status{Limit: 5, Remaining: 5}},
		{"a remainder alone", 200, []string{"X-RateLimit-Remaining: 4"}, outbound.Status{Limit: 5, Remaining: 4}},
		{"nonsense shows no limit", 200, []string{"X-RateLimit-Limit: many", "X-RateLimit-Remaining: -1"}, outbound.Status{Limit: none}},
		{
			"a refusal", 429,
			[]string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 0.5", "X-RateLimit-Scope: user", "Retry-After: 64.57"},
			outbound.Status{Limit: 5, ResetAfter: 500 * time.Millisecond, RetryAfter: 64570 * time.Millisecond},
		},
		{"a refusal by Reset-After", 429, []string{"X-RateLimit-Reset-After: 0.5"}, outbound.Status{ResetAfter: 500 * time.Millisecond, RetryAfter: 500 * time.Millisecond}},
		{"a refusal that says nothing", 429, nil, outbound.Status{RetryAfter: time.Second}},
		{"a refusal until a date", 429, []string{date, "Retry-After: Tue, 02 Aug 2016 21:23:43 GMT"}, outbound.Status{RetryAfter: 2 * time.Second}},
		{"a refusal until the past", 429, []string{date, "Retry-After: Tue, 02 Aug 2016 21:23:00 GMT"}, outbound.Status{RetryAfter: time.Second}},
		{"a refusal for ever", 429, []string{"Retry-After: 99999999999999999999"}, outbound.Status{RetryAfter: time.Second}},
		{"a refusal for infinity", 429, []string{"Retry-After: Inf"}, outbound.Status{RetryAfter: time.Second}},
		{
			"the headers of a global refusal are not the route's", 429,
			[]string{"X-RateLimit-Global: true", "X-RateLimit-Limit: 50", "X-RateLimit-Remaining: 0", "Retry-After: 1"},
			outbound.Status{RetryAfter: time.Second, Global: true},
		},
		{"a global refusal by its scope", 429, []string{"X-RateLimit-Scope: global", "Retry-After: 1"}, outbound.Status{RetryAfter: time.Second, Global: true}},
		{"a shared one is the route's", 429, []string{"X-RateLimit-Scope: shared", "Retry-After: 600"}, outbound.Status{RetryAfter: 10 * time.Minute}},
		{"only refusals are global", 200, []string{"X-RateLimit-Global: true"}, outbound.Status{Limit: none}},
		{"maintenance", 503, []string{"Retry-After: 120"}, outbound.Status{RetryAfter: 2 * time.Minute}},
		{"an outage", 503, nil, outbound.Status{}},
		{"what is created elsewhere", 202, []string{"Retry-After: 120"}, outbound.Status{}},
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
			t.Errorf("%d of %d remain", s.Remaining, s.Limit)
		}
		if code == http.StatusTooManyRequests && s.RetryAfter == 0 {
			t.Error("a refusal is not waited for")
		}
		if s.Limit == outbound.Unlimited && (s.ResetAfter > 0 || s.RetryAfter > 0 || code >= 400) {
			t.Errorf("a response with code %d shows no limit: %+v", code, s)
		}
		checkSeconds(t, resetAfter, s)
	})
}

// checkSeconds compares a decimal number with what the standard library makes of it.
func checkSeconds(t *testing.T, text string, s outbound.Status) {
	text = strings.TrimSpace(text)
	told, ok := new(big.Rat).SetString(text)
	if !ok || s.Global || strings.Trim(text, "0123456789.") != "" || strings.HasPrefix(text, ".") || strings.HasSuffix(text, ".") {
		return
	}
	if told.Cmp(big.NewRat(31*24*3600, 1)) > 0 || strings.Index(text+".", ".") > 10 {
		return
	}
	nanos := new(big.Rat).Mul(told, big.NewRat(int64(time.Second), 1))
	excess := nanos.Sub(big.NewRat(int64(s.ResetAfter), 1), nanos)
	if excess.Sign() < 0 || excess.Cmp(big.NewRat(1, 1)) > 0 {
		t.Errorf("%q is taken for %v", text, s.ResetAfter)
	}
}
