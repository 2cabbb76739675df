package limit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

func TestParsePolicy_AcceptsSyntax(t *testing.T) {
	for _, c := range []struct {
		text string
		want limit.Policy
		back string // "" if it is text
	}{
		{"10/s", limit.PerSecond(10), ""},
		{"10/s burst 20", limit.PerSecond(10).Burst(20), ""},
		{"3/m", limit.PerMinute(3), ""},
		{"60/h burst 1", limit.PerHour(60).Burst(1), ""},
		{"1000/24h", limit.Per(1000, 24*time.Hour), ""},
		{"100/1h30m burst 5", limit.Per(100, 90*time.Minute).Burst(5), ""},
		{"1/250ms", limit.Per(1, 250*time.Millisecond), ""},
		{"1/7µs", limit.Per(1, 7*time.Microsecond), ""},
		{"1/1m40s", limit.Per(1, 100*time.Second), ""},
		{"1/1h0m5s", limit.Per(1, 3605*time.Second), ""},
		{"chat: 10/s", limit.PerSecond(10).Named("chat"), ""},
		{"10/s: 5/m", limit.PerMinute(5).Named("10/s"), ""},
		{"größe-1_b.c: 1/s", limit.PerSecond(1).Named("größe-1_b.c"), ""},
		{`"two words": 1/s burst 2`, limit.PerSecond(1).Burst(2).Named("two words"), ""},
		{`"a: \"b\"\n\xff#": 1/s`, limit.PerSecond(1).Named("a: \"b\"\n\xff#"), ""},
		{" chat :\t10/s   burst  10 ", limit.PerSecond(10).Named("chat"), "chat: 10/s"},
		{`"chat" : 10/1s`, limit.PerSecond(10).Named("chat"), "chat: 10/s"},
		{`"": 007/1.5h`, limit.Per(7, 90*time.Minute), "7/1h30m"},
		{"1/us", limit.Per(1, time.Microsecond), "1/1µs"},
		{"6/60s", limit.PerMinute(6), "6/m"},
	} {
		got, err := limit.ParsePolicy(c.text)
		if assert.NoError(t, err) {
			assert.Equal(t, c.want, got, c.text)
		}
		if c.back == "" {
			c.back = c.text
		}
		assert.Equal(t, c.back, c.want.String())
	}
}

func TestParsePolicy_ErrorsSuggestCorrection(t *testing.T) {
	for text, want := range map[string]string{
		"":                        `limit: policy "": there is no rate; write one such as 10/s`,
		"chat:":                   `limit: policy "chat:": there is no rate; write one such as 10/s`,
		": 10/s":                  `limit: policy ": 10/s": there is no name before the colon; write chat: 10/s, or 10/s without a colon`,
		"two words: 1/s":          `limit: policy "two words: 1/s": the name must be quoted, as in "two words": 10/s`,
		`"chat: 1/s`:              `limit: policy "\"chat: 1/s": the name has no closing quote; write it as "two words": 10/s`,
		`"chat" 1/s`:              `limit: policy "\"chat\" 1/s": the name "chat" must be followed by a colon, as in "chat": 10/s`,
		"10":                      `limit: policy "10": "10" is not a rate; write tokens, a slash and a time, such as 10/s or 1/250ms`,
		"-1/s":                    `limit: policy "-1/s": "-1" is not a number of tokens; write digits, such as 10`,
		"1.5/s":                   `limit: policy "1.5/s": "1.5" is not a number of tokens; write digits, such as 10`,
		"/s":                      `limit: policy "/s": "" is not a number of tokens; write digits, such as 10`,
		"1/":                      `limit: policy "1/": "" is not a time; write s, m, h or a duration such as 250ms or 1h30m`,
		"1/day":                   `limit: policy "1/day": "day" is not a time; write s, m, h or a duration such as 250ms or 1h30m`,
		"1/0s":                    `limit: policy "1/0s": the time "0s" must be more than 0`,
		"1/-1s":                   `limit: policy "1/-1s": the time "-1s" must be more than 0`,
		"1/s burst":               `limit: policy "1/s burst": the rate may only be followed by burst and a number, as in 1/s burst 20; it is followed by "burst"`,
		"1/s 20":                  `limit: policy "1/s 20": the rate may only be followed by burst and a number, as in 1/s burst 20; it is followed by "20"`,
		"1/s burst 2 x":           `limit: policy "1/s burst 2 x": the rate may only be followed by burst and a number, as in 1/s burst 20; it is followed by "burst 2 x"`,
		"1/s burst many":          `limit: policy "1/s burst many": "many" is not a number of tokens; write digits, such as 10`,
		"9999999999999999999/s":   `limit: policy "9999999999999999999/s": 9999999999999999999 tokens are too many`,
		"0/s":                     `limit: policy "0/s": it must be at least 1 token; for slower rates, lengthen the time, as in 1/10s`,
		"mail: 1/s burst 0":       `limit: policy "mail: 1/s burst 0": the burst must be at least 1 token`,
		"mail: 1/h burst 9999999": `limit: policy "mail": Capacity is 9999999; with 1 tokens every 1h0m0s it must be at most 625499`,
		"1/1500ns":                "limit: Per is 1.5µs; it must be a whole number of microseconds, or 0 for one second",
	} {
		p, err := limit.ParsePolicy(text)
		assert.EqualError(t, err, want)
		assert.Zero(t, p, text)
	}
}

func TestPolicy_StringWritesZeroPerAsSecond(t *testing.T) {
	p, err := limit.ParsePolicy(limit.Policy{Capacity: 2, Refill: 1}.String())
	require.NoError(t, err)
	assert.Equal(t, limit.PerSecond(1).Burst(2), p)
}

func FuzzParsePolicy(f *testing.F) {
	for _, text := range []string{"10/s", "chat: 10/s burst 20", `"two\nwords": 1/1h30m burst 5`, "1/250ms", "1/0s", `"`, ":", "1/ .5s", "1/µs"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := limit.ParsePolicy(text)
		if err != nil {
			assert.Zero(t, p)
			assert.Contains(t, err.Error(), "limit: ")
			return
		}
		require.NoError(t, p.Validate())
		back, err := limit.ParsePolicy(p.String())
		require.NoError(t, err)
		assert.Equal(t, p, back)
	})
}
