package outbound_test

import (
	"fmt"
	"math/big"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// TestParseHeaders_Files parses the responses of two files. Each has a name, a status code, headers, and
// the result.
func TestParseHeaders_Files(t *testing.T) {
	for file, responses := range map[string]int{"headers": 68, "gateways": 45} {
		text, err := os.ReadFile("testdata/" + file + ".txt")
		require.NoError(t, err)
		blocks := strings.Split(strings.TrimSpace(string(text)), "\n\n")[1:]
		assert.Equal(t, responses, len(blocks), file)
		for _, block := range blocks {
			head, want, _ := strings.Cut(strings.ReplaceAll(block, "Date: now", date), "\n-> ")
			lines := strings.Split(head, "\n")
			code, err := strconv.Atoi(lines[1])
			require.NoError(t, err, block)
			assert.Equal(t, want, describe(outbound.ParseHeaders(code, headers(lines[2:]...))), block)
		}
	}
}

// describe returns a status as the files write it.
func describe(s outbound.Status) string {
	var words []string
	switch s.Limit {
	case outbound.Unlimited:
		words = append(words, "unlimited")
	case 0:
	default:
		words = append(words, fmt.Sprintf("%d of %d", s.Remaining, s.Limit))
	}
	if s.ResetAfter != 0 {
		words = append(words, "reset "+s.ResetAfter.String())
	}
	if s.RetryAfter != 0 {
		words = append(words, "retry "+s.RetryAfter.String())
	}
	if s.Global {
		words = append(words, "global")
	}
	if len(words) == 0 {
		return "unknown"
	}
	return strings.Join(words, ", ")
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
