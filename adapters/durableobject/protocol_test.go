package durableobject_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject"
	"github.com/penstock-go/penstock/limit"
)

// TestLimiter_OnlyACompleteReplyIsADecision covers replies of other servers, of other versions and of
// Cloudflare itself.
func TestLimiter_OnlyACompleteReplyIsADecision(t *testing.T) {
	const json = "application/json"
	for name, tt := range map[string]struct {
		status            int
		contentType, body string
		want              string
	}{
		"too few":                {200, json, `{"v":2,"tick":1000,"replies":[]}`, "answered 0 of 1 calls"},
		"too many":               {200, json, `{"v":2,"tick":1000,"replies":[[[1,1,0,0]],[[1,1]]]}`, "answered 2 of 1 calls"},
		"no numbers":             {200, json, `{"v":2,"tick":1000}`, "answered 0 of 1 calls"},
		"null":                   {200, json, `null`, "version 0"},
		"empty":                  {200, json, ``, "unexpected end"},
		"not decided":            {200, json, `{"v":2,"tick":1000,"replies":[null]}`, "the Durable Object of the key is unavailable"},
		"another version":        {200, json, `{"v":3,"tick":1000,"replies":[[[1,1,0,0]]]}`, "version 3; it must be 2"},
		"no version":             {200, json, `{"tick":1000,"replies":[[[1,1,0,0]]]}`, "version 0"},
		"no tick":                {200, json, `{"v":2,"replies":[[[1,1,0,0]]]}`, "resolution of 0 µs"},
		"negative tick":          {200, json, `{"v":2,"tick":-1,"replies":[[[1,1,0,0]]]}`, "resolution of -1 µs"},
		"large tick":             {200, json, `{"v":2,"tick":1000001,"replies":[[[1,1,0,0]]]}`, "resolution of 1000001 µs"},
		"more than a full one":   {200, json, `{"v":2,"tick":1000,"replies":[[[3600000001,1,0,0]]]}`, "returned 3600000001 units"},
		"blocked too long":       {200, json, `{"v":2,"tick":1000,"replies":[[[-9007199254740991,1,0,0]]]}`, "returned -9007199254740991 units"},
		"a fraction":             {200, json, `{"v":2,"tick":1000,"replies":[[[1.5,1,0,0]]]}`, "not the Worker's"},
		"an exponent":            {200, json, `{"v":2,"tick":1000,"replies":[[[1e3,1,0,0]]]}`, "not the Worker's"},
		"a string":               {200, json, `{"v":2,"tick":1000,"replies":[[["1",1,0,0]]]}`, "not the Worker's"},
		"truncated":              {200, json, `{"v":2,"tick":1000,"replies":[[[1`, "unexpected end"},
		"two values":             {200, json, `{"v":2,"tick":1000,"replies":[[[1,1,0,0]]]}{}`, "after top-level value"},
		"huge":                   {200, json, `{"v":2,"tick":1000,"replies":[[[1,1,0,0]]]}` + strings.Repeat(" ", 1<<20), "longer than 65536 bytes"},
		"HTML":                   {200, "text/html; charset=utf-8", `<html>`, "is not JSON"},
		"JSON as HTML":           {200, "text/html", `{"v":2,"tick":1000,"replies":[[[1,1,0,0]]]}`, "is not JSON"},
		"no content":             {204, json, ``, "status 204"},
		"created":                {201, json, `{"v":2,"tick":1000,"replies":[[[1,1,0,0]]]}`, "status 201"},
		"redirect":               {302, json, ``, "status 302; redirects are not followed"},
		"redirect of the method": {307, json, ``, "status 307; redirects are not followed"},
		"permanent redirect":     {308, json, ``, "status 308; redirects are not followed"},
		"invalid":                {400, json, `{"v":2,"error":"invalid"}`, "status 400; the Worker must be of this version"},
		"wrong secret":           {401, json, ``, "status 401; the secret must be"},
		"not found":              {404, "text/plain", ``, "status 404; the URL must be"},
		"limited by Cloudflare":  {429, "text/html", `error code: 1027`, "status 429; Cloudflare limits"},
		"failed":                 {500, "text/html", `error code: 1101`, "status 500"},
		"overloaded":             {503, json, `{"v":2,"error":"overloaded"}`, "overloaded; more SHARDS"},
		"unavailable":            {503, json, `{"v":2,"error":"unavailable"}`, "Object is unavailable"},
		"bad gateway":            {502, "text/html", strings.Repeat("<br>", 1<<18), "status 502"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, requests := replies(t, tt.status, tt.contentType, tt.body)
			l := durableobject.NewLimiter(client, limit.PerHour(10))
			d, err := limit.Consume(t.Context(), l, ann(), 1)
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "durableobject: limiter: ")
			assert.NotContains(t, err.Error(), secret)
			assert.Zero(t, d)
			assert.EqualValues(t, 1, requests.Load(), "the request must not be repeated")
			_, err = limit.Consume(t.Context(), l, ann(), 1)
			require.Error(t, err, "an error is not in the cache")
		})
	}
}

func TestLimiter_ReplyIsADecision(t *testing.T) {
	client, _ := replies(t, 200, "application/json; charset=utf-8", `{"v":2,"tick":1000,"replies":[[[3600000000,1,0,0]]]}`)
	d, err := limit.Consume(t.Context(), durableobject.NewLimiter(client, limit.PerHour(10)), ann(), 1)
	require.NoError(t, err)
	assert.Equal(t, limit.Decision{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: 6 * time.Minute}, d)

	client, _ = replies(t, 200, "application/json", `{"v":2,"tick":1000,"replies":[[[-4503599627371497,1,0,0]]]}`)
	d, err = limit.Consume(t.Context(), durableobject.NewLimiter(client, limit.PerHour(10)), ann(), 1)
	require.NoError(t, err)
	assert.Equal(t, limit.Decision{Limit: 10, RetryAfter: 2 * time.Millisecond, ResetAfter: 2 * time.Millisecond, Reason: limit.Blocked}, d)
}

func TestLimiter_OtherCallsNeedACompleteReply(t *testing.T) {
	for body, want := range map[string]string{
		`{"v":2,"tick":1000,"replies":[null]}`:        "unavailable",
		`{"v":2,"tick":1000,"replies":[[[0]]]}`:       "returned [0] about a block; it must be [1]",
		`{"v":2,"tick":1000,"replies":[[[]]]}`:        "returned [] about a block",
		`{"v":2,"tick":1000,"replies":[[[1],[1]]]}`:   "answered 2 of 1 parts",
		`{"v":2,"tick":1000,"replies":[]}`:            "answered 0 of 1 calls",
		`{"v":2,"tick":1000,"replies":[[[1]],[[1]]]}`: "answered 2 of 1 calls",
		`{"tick":1000,"replies":[[[1]]]}`:             "version 0",
	} {
		client, _ := replies(t, 200, "application/json", body)
		l := durableobject.NewLimiter(client, limit.PerHour(10))
		assert.ErrorContains(t, l.Block(t.Context(), ann(), time.Second), want, body)
		assert.ErrorContains(t, l.Reset(t.Context(), ann()), want, body)
	}
	for body, want := range map[string]string{
		`{"v":2,"tick":1000,"permits":[null]}`:        "unavailable",
		`{"v":2,"tick":1000,"permits":[]}`:            "answered 0 of 1 calls",
		`{"v":2,"tick":1000,"permits":[[1]]}`:         "returned [1] for a permit",
		`{"v":2,"tick":1000,"permits":[[2,1]]}`:       "returned [2 1] for a permit",
		`{"v":2,"tick":1000,"permits":[[1,0]]}`:       "returned [1 0] for a permit",
		`{"v":2,"tick":1000,"permits":[[1,1,1]]}`:     "returned [1 1 1] for a permit",
		`{"v":2,"tick":1000,"permits":[[1,1],[1,1]]}`: "answered 2 of 1 calls",
		`{"tick":1000,"permits":[[1,1]]}`:             "version 0",
	} {
		client, _ := replies(t, 200, "application/json", body)
		p, err := durableobject.NewSemaphore(client, "renders", 1).Acquire(t.Context(), ann())
		assert.ErrorContains(t, err, want, body)
		assert.Zero(t, p)
	}
}

// TestLimiter_RequestIsThatOfTheProtocol also holds the bytes of a key that JSON would change.
func TestLimiter_RequestIsThatOfTheProtocol(t *testing.T) {
	var got string
	transport := roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		got = fmt.Sprintf("%s %s %d %s", r.Method, r.URL.Path, r.ContentLength-int64(len(body)), body)
		assert.Equal(t, "Bearer "+secret, r.Header.Get("Authorization"))
		assert.Equal(t, "application/json", r.Header.Get("Content-Type"))
		for name := range r.Header {
			assert.NotContains(t, name, "Idempotency")
		}
		return answer(`{"v":2,"tick":1000,"replies":[[[0,1,0,0]]],"permits":[[0,1]]}`), err
	})
	client := durableobject.NewClient("https://limits.example", secret, &durableobject.Options{HTTPClient: &http.Client{Transport: transport}})
	l := durableobject.NewLimiter(client, limit.PerMinute(7).Named(`say "hi"`))
	fresh := func() *durableobject.Limiter { return durableobject.NewLimiter(client, limit.PerMinute(7).Named("p")) }
	key := limit.Key{"user", "\xff", `jörg"\`}
	const name = `"say%20%22hi%22",":user:%FF:j%C3%B6rg%22%5C"`
	for want, call := range map[string]func() error{
		`/v2/limit 0 {"v":2,"calls":[[["bucket",` + name + `,"take",7,60000000,7,120000000,0,120000000,0]]]}`: func() error {
			_, err := limit.Consume(t.Context(), l, key, 2)
			return err
		},
		`/v2/limit 0 {"v":2,"calls":[[["bucket","p","","take",7,60000000,7,0,0,1,0]]]}`: func() error {
			_, err := limit.Consume(t.Context(), fresh(), limit.Key{}, 8)
			return err
		},
		`/v2/limit 0 {"v":2,"calls":[[["bucket","p",":a","take",7,60000000,7,60000000,-7000000,60000000,0]]]}`: func() error {
			_, err := limit.Reserve(t.Context(), fresh(), limit.Key{"a"}, 1, time.Second)
			return err
		},
		`/v2/limit 0 {"v":2,"calls":[[["bucket","p",":a","take",7,60000000,7,60000000,120000000,60000000,0]]]}`: func() error {
			_, err := limit.ConsumeKeeping(t.Context(), fresh(), limit.Key{"a"}, 1, 2)
			return err
		},
		`/v2/limit 0 {"v":2,"calls":[[["bucket","p",":a","take",7,60000000,7,420000000,0,60000000,0]]]}`: func() error {
			_, _, err := limit.ConsumeUpTo(t.Context(), fresh(), limit.Key{"a"}, 100)
			return err
		},
		`/v2/limit 0 {"v":2,"calls":[[["bucket","p",":a","take",7,60000000,7,60000000,-4503599207370496,1,0]]]}`: func() error {
			return limit.Charge(t.Context(), fresh(), limit.Key{"a"}, 1)
		},
		`/v2/limit 0 {"v":2,"calls":[[["bucket","p",":a","take",7,60000000,7,-60000000,0,1,0]]]}`: func() error {
			return limit.Refund(t.Context(), fresh(), limit.Key{"a"}, 1)
		},
	} {
		require.NoError(t, call())
		assert.Equal(t, "POST "+want, got)
	}
	for want, call := range map[string]func() error{
		`1500000`: func() error { return fresh().Block(t.Context(), limit.Key{"a"}, 1500*time.Millisecond) },
		`0`:       func() error { return fresh().Reset(t.Context(), limit.Key{"a"}) },
	} {
		require.ErrorContains(t, call(), "returned [0 1 0 0] about a block")
		assert.Equal(t, `POST /v2/limit 0 {"v":2,"calls":[[["bucket","p",":a","block",`+want+`]]]}`, got)
	}
	p, err := durableobject.NewSemaphore(client, "renders", 3).Acquire(t.Context(), limit.Key{"a"})
	require.NoError(t, err)
	assert.Equal(t, limit.Permit{InUse: 1, Limit: 3}, p)
	assert.Regexp(t, `^POST /v2/semaphore 0 {"v":2,"calls":\[\["renders:a","[A-Z2-7]{26}",3,10000,0\]\]}$`, got)
}

// FuzzLimiter_Reply looks for replies that are taken for an impossible decision.
func FuzzLimiter_Reply(f *testing.F) {
	for _, body := range []string{
		`{"v":2,"tick":1000,"replies":[[[1000000,1,0,0]]]}`, `{"v":2,"tick":1,"replies":[[[-5,1,0,0]]]}`, `{"v":2,"tick":1000,"replies":[null]}`,
		`{"v":2,"tick":1000,"replies":[[[-4503599627371497,1,0,0]]]}`, `{"V":1,"Tick":7,"REPLIES":[],"replies":[[[1,1,0,0]]]}`, `[]`, `{"v":2e0}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		transport := roundTripper(func(*http.Request) (*http.Response, error) { return answer(string(body)), nil })
		client := durableobject.NewClient("https://limits.example", secret, &durableobject.Options{HTTPClient: &http.Client{Transport: transport}})
		d, err := limit.Consume(t.Context(), durableobject.NewLimiter(client, limit.PerSecond(10)), ann(), 3)
		switch {
		case err != nil:
			assert.Zero(t, d)
		case d.Allowed:
			assert.Zero(t, d.RetryAfter)
			assert.LessOrEqual(t, d.Remaining, int64(7))
		default:
			assert.Positive(t, d.RetryAfter)
			assert.Less(t, d.Remaining, int64(3))
		}
		assert.GreaterOrEqual(t, d.Remaining, int64(0))
		assert.GreaterOrEqual(t, d.ResetAfter, time.Duration(0))
	})
}
