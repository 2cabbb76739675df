package replay_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
)

func TestParsePolicy_StringIsParsedBack(t *testing.T) {
	for text, want := range map[string]string{
		"10/s":                                    "10/s",
		" chat :  10/1s burst 20 ":                "chat: 10/s burst 20",
		`"two words": 100/1h30m`:                  `"two words": 100/1h30m`,
		`"a:b": quota 5/day`:                      `"a:b": quota 5/day`,
		"10/s burst 20 wait 2s":                   "10/s burst 20 wait 2s",
		"10/s + 100/m wait 60s":                   "10/s + 100/m wait 1m",
		"sliding-log 10/60s":                      "sliding-log 10/m",
		"x: sliding-counter 1000000/1h0m":         "x: sliding-counter 1000000/h",
		"quota 1000/hour":                         "quota 1000/hour",
		"quota 1000/day UTC":                      "quota 1000/day",
		"quota 1000/month Europe/Berlin":          "quota 1000/month Europe/Berlin",
		"quota 1/day Etc/GMT+5 + 1/s":             "quota 1/day Etc/GMT+5 + 1/s",
		"cooldown 10/m penalty 300s":              "cooldown 10/m penalty 5m",
		"a: 10/s + sliding-log 9/m + quota 9/day": "a: 10/s + sliding-log 9/m + quota 9/day",
	} {
		p, err := replay.ParsePolicy(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, p.String())
		again, err := replay.ParsePolicy(p.String())
		require.NoError(t, err, text)
		assert.Equal(t, p.String(), again.String())
	}
}

func TestParsePolicy_MistakesPrintTheCorrection(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "there is no limit; write one such as 10/s",
		"chat:":                             "there is no limit; write one such as 10/s",
		"10":                                `"10" is not a rate, such as 10/s, and not sliding-log, sliding-counter, quota or cooldown`,
		"slidinglog 10/m":                   `"slidinglog" is not a rate`,
		"10/s burst":                        "the rate may only be followed by burst and a number",
		"10/s penalty 5m":                   `as in 10/s burst 20; it is followed by "penalty 5m"`,
		"1234567/s":                         "cannot be counted exactly",
		"two words: sliding-log 10/m":       `the name must be quoted, as in "two words": 10/s`,
		": quota 10/day":                    "there is no name before the colon; write chat: 10/s",
		`"chat 10/s`:                        "the name has no closing quote",
		`"chat" quota 10/day`:               `the name "chat" must be followed by a colon`,
		"a: b: sliding-log 10/m":            "there is more than one colon; write one, after the name",
		"sliding-log":                       `"sliding-log" must be written as sliding-log 10/m`,
		"sliding-log 10/m burst 5":          `"sliding-log 10/m burst 5" must be written as sliding-log 10/m`,
		"sliding-log 10":                    `"10" is not a rate; write a number, a slash and a time, such as 10/m`,
		"sliding-log 0/m":                   `"0" is not a number of requests; write digits, at least 1`,
		"sliding-log ten/m":                 `"ten" is not a number of requests`,
		"sliding-log 10/minute":             `"minute" is not a time; write s, m, h or a duration such as 250ms or 1h30m`,
		"sliding-log 1001/m":                "a log keeps at most 1000 calls (for more, use a sliding-window counter or a token bucket)",
		"sliding-counter 10/5us":            "it must be a whole number of milliseconds, at least 1",
		"sliding-counter 10/m/s":            `"m/s" is not a time`,
		"quota 10":                          `"10" is not a quota; write quota 1000/day, or quota 1000/day Europe/Berlin`,
		"quota 10/d":                        `"d" is not a period of the calendar; write hour, day, week or month, as in quota 10/day`,
		"quota -1/day":                      `"-1" is not a number of requests`,
		"quota 10/day Mars/Olympus":         `"Mars/Olympus" is not a time zone; write a name such as Europe/Berlin, or none for UTC`,
		"quota 10/day in Europe/Berlin":     "must be written as quota 1000/day, or quota 1000/day Europe/Berlin",
		"cooldown 10/m":                     `"cooldown 10/m" must be written as cooldown 10/m penalty 5m`,
		"cooldown 10/m for 5m":              "must be written as cooldown 10/m penalty 5m",
		"cooldown 10/m penalty 5":           `"5" is not a time`,
		"cooldown 10/m penalty 0s":          `the time "0s" must be more than 0`,
		"cooldown 5000/m penalty 5m":        "Max is 5000; it must be from 1 to 1000",
		"cooldown 10/m penalty 5m + 10/s":   "a cooldown cannot be combined with other limits",
		"10/s+100/m":                        `"10/s+100/m" has a + without spaces; write it as in 10/s + quota 1000/day`,
		"10/s +":                            "a + must be between two limits, as in 10/s + quota 1000/day",
		"+ 10/s":                            "a + must be between two limits",
		"10/s + + 5/s":                      "a + must be between two limits",
		"+":                                 "a + must be between two limits",
		"10/s wait":                         "wait must be followed by a time and end the policy, as in 10/s burst 20 wait 2s",
		"10/s wait 2s burst 20":             "wait must be followed by a time and end the policy",
		"10/s wait 2s + 5/m":                "wait must be followed by a time and end the policy",
		"10/s wait soon":                    `"soon" is not a time`,
		"10/s wait 2h":                      "wait is 2h; it must be at most 1h",
		"wait 2s":                           "there is no limit",
		"10/s + quota 10/day wait 2s":       `"quota 10/day" has no tokens to wait for; only token buckets, such as 10/s, may be followed by wait`,
		"cooldown 10/m penalty 5m wait 10s": `"cooldown 10/m penalty 5m" has no tokens to wait for`,
	} {
		_, err := replay.ParsePolicy(text)
		if assert.ErrorContains(t, err, want) {
			assert.ErrorContains(t, err, `policy "`, "the error names the policy")
		}
	}
}
