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
		{"reset after 0, without decimals", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 0"}, outbound.Status{Limit: 5, ResetAfter: time.Second}},
		{"negative reset", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: -1"}, outbound.Status{Limit: 5}},
		{"reset without decimals may be at the end of its second", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173023"}, outbound.Status{Limit: 5, Remaining: 5, ResetAfter: 2 * time.Second}},
		{"reset with decimals", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173023.123"}, outbound.Status{Limit: 5, Remaining: 5, ResetAfter: 1123 * time.Millisecond}},
		{"reset in the current second", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173022"}, outbound.Status{Limit: 5, Remaining: 5, ResetAfter: time.Second}},
		{"reset in years", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 2000000000"}, outbound.Status{Limit: 5, Remaining: 5}},
		{"reset in the past", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173021"}, outbound.Status{Limit: 5, Remaining: 5}},
		{"reset without a date", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173023"}, outbound.Status{Limit: 5, Remaining: 5}},
		{"reset in milliseconds", 200, []string{date, "X-RateLimit-Limit: 5", "X-RateLimit-Reset: 1470173023000"}, outbound.Status{Limit: 5, Remaining: 5, ResetAfter: 1001 * time.Millisecond}},
		{"limit of 0", 200, []string{"X-RateLimit-Limit: 0"}, outbound.Status{Limit: 1}},
		{"remaining above limit", 200, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 9"}, outbound.Status{Limit: 5, Remaining: 5}},
		{"remaining without limit", 200, []string{"X-RateLimit-Remaining: 4"}, outbound.Status{Limit: 5, Remaining: 4}},
		{"malformed limit is ignored", 200, []string{"X-RateLimit-Limit: many", "X-RateLimit-Remaining: -1"}, outbound.Status{}},
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

		{"policy", 200, []string{`RateLimit-Policy: "burst";q=100;w=60`, `RateLimit: "burst";r=50;t=30`}, outbound.Status{Limit: 100, Remaining: 50, ResetAfter: 30 * time.Second}},
		{"policy replaces X-RateLimit", 200, []string{`RateLimit: "burst";r=50;t=30`, "X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 4", "X-RateLimit-Reset-After: 1"}, outbound.Status{Limit: 51, Remaining: 50, ResetAfter: 30 * time.Second}},
		{
			"the policy of which least remains", 200,
			[]string{`RateLimit-Policy: "burst";q=100;w=60,"daily";q=1000;w=86400;pk=:cHJpdmF0ZQ==:;unknown=?1`, `RateLimit: "burst";r=50;t=30,"daily";r=40;t=3600`},
			outbound.Status{Limit: 1000, Remaining: 40, ResetAfter: time.Hour},
		},
		{
			"the policy that is exhausted for longest", 200,
			[]string{`RateLimit: "burst";r=0;t=30`, `RateLimit: "daily";r=0;t=3600, "monthly";r=9;t=360000`},
			outbound.Status{Limit: 1, ResetAfter: time.Hour},
		},
		{"exhausted policy without t", 200, []string{`RateLimit-Policy: "a";q=9;w=60`, `RateLimit: "a";r=0`}, outbound.Status{Limit: 9, ResetAfter: time.Minute}},
		{"policy without t", 200, []string{`RateLimit-Policy: "a";q=9;w=60`, `RateLimit: "a";r=1`}, outbound.Status{Limit: 9, Remaining: 1}},
		{"t of 0", 200, []string{`RateLimit: "a";r=0;t=0`}, outbound.Status{Limit: 1, ResetAfter: time.Second}},
		{"t of a year is limited to 31 days", 200, []string{`RateLimit: "a";r=0;t=31536000`}, outbound.Status{Limit: 1, ResetAfter: 31 * 24 * time.Hour}},
		{"r above q", 200, []string{`RateLimit-Policy: "a";q=9`, `RateLimit: "a";r=12;t=1`}, outbound.Status{Limit: 9, Remaining: 9, ResetAfter: time.Second}},
		{"only RateLimit-Policy", 200, []string{`RateLimit-Policy: "a";q=9;w=60`}, outbound.Status{Limit: 9, Remaining: 9}},
		{"other units", 200, []string{`RateLimit-Policy: "a";q=9;qu="content-bytes"`, `RateLimit: "a";r=5;t=3`}, outbound.Status{Limit: unlimited}},
		{"exhausted other units", 200, []string{`RateLimit-Policy: "a";q=9;qu="content-bytes"`, `RateLimit: "a";r=0;t=3`}, outbound.Status{Limit: 1, ResetAfter: 3 * time.Second}},
		{"largest integer", 200, []string{`RateLimit: "a";r=999999999999999;t=1`}, outbound.Status{Limit: 1_000_000_001, Remaining: 1_000_000_000, ResetAfter: time.Second}},
		{"integer above 15 digits", 200, []string{`RateLimit: "b";r=0;t=60, "a";r=1000000000000000;t=1`}, outbound.Status{}},
		{"negative r", 200, []string{`RateLimit: "a";r=-1;t=1`}, outbound.Status{}},
		{"decimal r", 200, []string{`RateLimit: "a";r=1.5;t=1`}, outbound.Status{}},
		{"missing r", 200, []string{`RateLimit: "b";r=0;t=60, "a";t=1`}, outbound.Status{}},
		{"missing q", 200, []string{`RateLimit-Policy: "a";w=1`}, outbound.Status{}},
		{"q is a string", 200, []string{`RateLimit-Policy: "a";q="1"`}, outbound.Status{}},
		{"qu is a token", 200, []string{`RateLimit-Policy: "a";q=1;qu=requests`}, outbound.Status{}},
		{"partition key is a string", 200, []string{`RateLimit: "a";r=0;t=60;pk="x"`}, outbound.Status{}},
		{"name is a token", 200, []string{`RateLimit: a;r=0;t=60`}, outbound.Status{}},
		{"inner list", 200, []string{`RateLimit: ("a");r=0;t=60`}, outbound.Status{}},
		{"trailing comma", 200, []string{`RateLimit: "a";r=0;t=60,`}, outbound.Status{}},
		{"malformed RateLimit leaves the policy", 200, []string{`RateLimit-Policy: "a";q=9;w=60`, `RateLimit: "a;r=0`}, outbound.Status{Limit: 9, Remaining: 9}},
		{"rejection by a policy", 429, []string{`RateLimit: "a";r=0;t=60`}, outbound.Status{Limit: 1, ResetAfter: time.Minute, RetryAfter: time.Minute}},
		{"Retry-After ends before t", 429, []string{`RateLimit: "a";r=0;t=60`, "Retry-After: 3"}, outbound.Status{Limit: 1, ResetAfter: time.Minute, RetryAfter: time.Minute}},
		{"Retry-After of another limit", 429, []string{`RateLimit: "a";r=5;t=60`, "Retry-After: 3"}, outbound.Status{Limit: 6, Remaining: 5, ResetAfter: time.Minute, RetryAfter: 3 * time.Second}},
		{"Retry-After of 0", 429, []string{"Retry-After: 0"}, outbound.Status{RetryAfter: time.Second}},
		{"Retry-After of 0, while the window lasts", 429, []string{"X-RateLimit-Limit: 5", "X-RateLimit-Remaining: 0", "X-RateLimit-Reset-After: 7.5", "Retry-After: 0"}, outbound.Status{Limit: 5, ResetAfter: 7500 * time.Millisecond, RetryAfter: 7500 * time.Millisecond}},
		{"Retry-After with decimals", 429, []string{"Retry-After: 0.25"}, outbound.Status{RetryAfter: 250 * time.Millisecond}},
		{"Retry-After as a duration", 503, []string{"Retry-After: 1m30s"}, outbound.Status{RetryAfter: 90 * time.Second}},
		{"negative Retry-After", 429, []string{"Retry-After: -1"}, outbound.Status{RetryAfter: time.Second}},
	} {
		assert.Equal(t, c.want, outbound.ParseHeaders(c.code, headers(c.lines...)), c.name)
	}
}

func FuzzParseHeaders_Policies(f *testing.F) {
	f.Add(200, `"burst";q=100;w=60,"daily";q=1000;w=86400;pk=:cHJpdmF0ZQ==:`, `"burst";r=50;t=30`)
	f.Add(429, `"a";q=0;qu="content-bytes"`, `"a";r=0;t=999999999999999`)
	f.Add(503, `"a";q=1000000000000000`, `("a" b);r=?1;t=@1`)
	f.Fuzz(func(t *testing.T, code int, policy, state string) {
		s := outbound.ParseHeaders(code, http.Header{"Ratelimit-Policy": {policy}, "Ratelimit": {state}})
		if s.Limit < outbound.Unlimited || s.Remaining < 0 || s.Remaining > max(s.Limit, 0) {
			t.Errorf("got %d remaining of %d", s.Remaining, s.Limit)
		}
		if s.ResetAfter < 0 || s.ResetAfter > 31*24*time.Hour {
			t.Errorf("ResetAfter is %v", s.ResetAfter)
		}
		if code == http.StatusTooManyRequests && s.RetryAfter == 0 {
			t.Error("a 429 returned no RetryAfter")
		}
	})
}

func FuzzParseHeaders(f *testing.F) {
	f.Add(200, "5", "4", "1470173023", "1.25", "", "", "Tue, 02 Aug 2016 21:23:42 GMT")
	f.Add(429, "5", "0", "1470173023.123", "-0.5", "64.57", "true", "")
	f.Add(200, "5", "0", "0", "0", "", "", "")
	f.Add(200, "5", "0", "2000000000", "", "", "", "Tue, 02 Aug 2016 21:23:42 GMT")
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
	if exact.Sign() == 0 && !strings.Contains(text, ".") {
		exact.SetInt64(1) // a whole number may have been rounded down
	}
	nanos := new(big.Rat).Mul(exact, big.NewRat(int64(time.Second), 1))
	excess := nanos.Sub(big.NewRat(int64(s.ResetAfter), 1), nanos)
	if excess.Sign() < 0 || excess.Cmp(big.NewRat(1, 1)) > 0 {
		t.Errorf("%q was parsed as %v", text, s.ResetAfter)
	}
}
