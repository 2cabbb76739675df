package durableobject_test

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/durableobject"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/mode"
)

// TestCounts_OnlyACompleteReplyIsADecision has replies that are not those of the Worker.
func TestCounts_OnlyACompleteReplyIsADecision(t *testing.T) {
	for reply, want := range map[string]string{
		`null`:                                  "the Durable Object of the key is unavailable",
		`[]`:                                    "the keys are in several Durable Objects",
		`[[0,1,0,0,0,0,1]]`:                     "returned 7 numbers about a key; it must return 8",
		`[[0,1,0,0,0,0,1,9,9]]`:                 "returned 9 numbers",
		`[[0,-1,0,0,0,0,1,9]]`:                  "returned [0 -1 0 0 0 0 1 9] about a key",
		`[[-1,1,0,0,0,0,1,9]]`:                  "returned [-1 1",
		`[[6,1,1,1,1,1,1,9]]`:                   "returned [6 1",
		`[[3,1,0,0,0,0,0,9]]`:                   "returned [3 1", // it denies, and may be asked again at once
		`[[3,1,9e15,0,0,0,0,9]]`:                "not the Worker's",
		`[[3,1,1,4000000000000000,0,0,0,9]]`:    "returned [3 1",
		`[[5,0,0,0,0,0,0,1730000000000000]]`:    "the time of the Durable Object is 1730000000000000, and the clock of this process differs by more than a period",
		`[[0,1,0,0,0,0,1,9],[0,1,0,0,0,0,1,9]]`: "answered 2 of 1 parts",
	} {
		client, _ := replies(t, 200, "application/json", `{"v":2,"tick":1000,"replies":[`+reply+`]}`)
		for name, l := range allCounts(client) {
			d, err := limit.Consume(t.Context(), l, ann(), 1)
			require.ErrorContains(t, err, want, name)
			require.ErrorContains(t, err, "durableobject: limiter: ", name)
			assert.Zero(t, d)
		}
	}
}

func allCounts(client *durableobject.Client) map[string]limit.Limiter {
	return map[string]limit.Limiter{
		"log":      durableobject.NewSlidingLog(client, limit.WindowPolicy{Name: "p", Max: 3, Window: time.Second}),
		"counter":  durableobject.NewSlidingCounter(client, limit.WindowPolicy{Name: "p", Max: 3, Window: time.Second}),
		"cooldown": durableobject.NewCooldown(client, limit.CooldownPolicy{Name: "p", Max: 3, Window: time.Second, Penalty: time.Minute}, nil),
		"quota":    durableobject.NewQuota(client, limit.QuotaPolicy{Name: "p", Max: 3, Period: limit.Day}),
	}
}

func TestCounts_RequestsAreThoseOfTheProtocol(t *testing.T) {
	var got string
	opts := &durableobject.Options{HTTPClient: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		got = string(body)
		return answer(`{"v":2,"tick":1000,"replies":[[[0,1,0,0,0,0,1,9]]]}`), err
	})}}
	for _, tt := range []struct {
		what string
		take limit.Take
		end  string // cost, and stamp or time to wait
	}{
		{"take", limit.Take{Cost: 2}, "2,0"},
		{"look", limit.Take{Cost: 2, Mode: mode.Looking}, "2,0"},
		{"look", limit.Take{Mode: mode.Looking}, "0,0"},
		{"upto", limit.Take{Cost: 200, Mode: mode.Partial}, "200,0"},
		{"refund", limit.Take{Cost: 2, Mode: mode.Returning}, "2,0"},
		{"undo", limit.Take{Mode: mode.Undoing, Undo: &limit.Receipt{Tokens: 2, Stamp: 7}}, "2,7"},
		{"take", limit.Take{Cost: 4}, "0,0"}, // never allowed
	} {
		client := durableobject.NewClient("https://limits.example", secret, opts)
		for kind, l := range allCounts(client) {
			_, err := l.Take(t.Context(), limit.Key{"a"}, tt.take)
			require.NoError(t, err)
			numbers := map[string]string{"log": "3,1000000,0", "counter": "3,1000", "cooldown": "3,1000000,60000000", "quota": `3,\d+,\d+,\d+,\d+,\d+`}[kind]
			assert.Regexp(t, fmt.Sprintf(`^{"v":2,"calls":\[\[\["%s","p",":a","%s",%s,%s\]\]\]}$`, kind, tt.what, numbers, tt.end), got)
		}
	}
	reserved := durableobject.NewSlidingLog(durableobject.NewClient("https://limits.example", secret, opts), limit.WindowPolicy{Name: "p", Max: 3, Window: time.Second})
	_, err := limit.Reserve(t.Context(), reserved, limit.Key{"a"}, 1, time.Second)
	require.NoError(t, err)
	assert.Equal(t, `{"v":2,"calls":[[["log","p",":a","take",3,1000000,0,1,1000000]]]}`, got)
	require.NoError(t, limit.Charge(t.Context(), reserved, limit.Key{"a"}, 9))
	assert.Equal(t, `{"v":2,"calls":[[["log","p",":a","charge",3,1000000,0,9,0]]]}`, got)
}

// TestCounts_RememberedWaitsEndAtWholeTicks has a denial of 3,334 µs on a clock of whole
// milliseconds.
func TestCounts_RememberedWaitsEndAtWholeTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int64
		transport := roundTripper(func(*http.Request) (*http.Response, error) {
			requests.Add(1)
			return answer(`{"v":2,"tick":1000,"replies":[[[3,3,3334,3334,3334,3334,0,9]]]}`), nil
		})
		client := durableobject.NewClient("https://limits.example", secret, &durableobject.Options{HTTPClient: &http.Client{Transport: transport}})
		l := allCounts(client)["cooldown"]
		for _, step := range []struct{ pause, retryAfter time.Duration }{
			{0, 4 * time.Millisecond},
			{1600 * time.Microsecond, 2400 * time.Microsecond},
			{733 * time.Microsecond, 1667 * time.Microsecond}, // the object may have read its clock a tick before
		} {
			time.Sleep(step.pause)
			d, err := limit.Consume(t.Context(), l, ann(), 1)
			require.NoError(t, err)
			assert.Equal(t, step.retryAfter, d.RetryAfter)
		}
		assert.EqualValues(t, 1, requests.Load())
		time.Sleep(time.Microsecond)
		_, err := limit.Consume(t.Context(), l, ann(), 1)
		require.NoError(t, err)
		assert.EqualValues(t, 2, requests.Load(), "only the object can decide")
	})
}
