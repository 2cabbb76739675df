package limitfile_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit/limitfile"
)

func TestParse_MistakesHaveTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "the file has no limit; write one per line, such as chat: 10/s burst 20",
		"# nothing\n\n":                      "the file has no limit",
		"chat: 10/s burst 2":                 "line 1: the last line must end with a line break; without one, the file may be incomplete",
		"chat: 1/s\n# and":                   "line 2: the last line must end with a line break",
		"\xef\xbb\xbfchat: 1/s\n":            "line 1: the file begins with a byte order mark; save it as UTF-8 without one",
		"chat: 1/s\n\xff: 2/s\n":             "line 2: the line is not UTF-8",
		"10/s\n":                             `line 1: "10/s" has no name; write the name of the limiter's policy before it, as in chat: 10/s`,
		"\"\": 10/s\n":                       "has no name",
		"chat:\n":                            `line 1: "chat" has no policy; write one after the colon, as in chat: 10/s`,
		"chat: 10/s # fast\n":                `line 1: the rate may only be followed by burst and a number, as in 10/s burst 20; it is followed by "# fast"`,
		"chat: ten/s\n":                      `line 1: "ten" is not a number of tokens; write digits, such as 10`,
		"chat: 0/s\n":                        "it must be at least 1 token",
		"chat: 1234567/s\n":                  "line 1: limit: 1234567 tokens every 1s cannot be counted exactly",
		"chat: fast\n":                       `line 1: "fast" is not a rate, such as 10/s, and not sliding-log, sliding-counter or quota`,
		"a: b: 10/s\n":                       "line 1: there is more than one colon",
		"two words: 10/s\n":                  `line 1: the name must be quoted, as in "two words": 10/s`,
		"a: 1/s\n\n# x\na: 2/s\n":            `line 4: "a" has a policy in line 1; a limit has one line`,
		"a: sliding-log 1001/m\n":            "line 1: limit: Max is 1001; a log keeps at most 1000 calls",
		"a: sliding-log 10/m burst 3\n":      `line 1: "sliding-log 10/m burst 3" must be written as sliding-log 10/m`,
		"a: sliding-counter 10\n":            `line 1: "10" is not a rate; write a number, a slash and a time, such as 10/m`,
		"a: sliding-counter\n":               `line 1: "sliding-counter" must be written as sliding-counter 1000/h`,
		"a: quota 10/day Mars/Olympus\n":     `line 1: "Mars/Olympus" is not a time zone`,
		"a: quota\n":                         `line 1: "quota" must be written as quota 1000/day`,
		"a: cooldown 10/m penalty 5m\n":      `line 1: "cooldown" does not belong in a file of limits`,
		"a: 10/s + 100/m\n":                  `line 1: "+" does not belong in a file of limits: a line is the policy of one limiter that can change`,
		"a: 10/s wait 2s\n":                  `line 1: "wait" does not belong in a file of limits`,
		"# x\nb: no\nc: 1/s\nd: 2/\n":        "line 2: \"no\" is not a rate, such as 10/s, and not sliding-log, sliding-counter or quota\nline 4: \"\" is not a time",
		strings.Repeat("x", 1<<20) + ": 1/s": "the file has more than 1048576 bytes",
	} {
		_, err := limitfile.Parse([]byte(text))
		assert.ErrorContains(t, err, want, "%.40q", text)
	}
}

func TestParse_ErrorsAreBounded(t *testing.T) {
	_, err := limitfile.Parse([]byte(strings.Repeat("wrong\n", 10_000)))
	all, ok := err.(interface{ Unwrap() []error })
	require.True(t, ok)
	assert.Len(t, all.Unwrap(), 20)
	line, ok := errors.AsType[*limitfile.InvalidLine](all.Unwrap()[19])
	require.True(t, ok)
	assert.Equal(t, 20, line.Line)
}

func TestPolicies_Changes(t *testing.T) {
	parse := func(text string) *limitfile.Policies {
		p, err := limitfile.Parse([]byte(text))
		require.NoError(t, err)
		return p
	}
	before := parse(" a : 10/1s burst 20 \r\nb: sliding-log 30/m\n\"two words\": quota 100/day\ngone: 1/s\nc: sliding-counter 1000/h\n")
	assert.Equal(t, 5, before.Len())
	assert.Empty(t, before.Changes(parse("gone: 1/s\nb: sliding-log 30/60s\na: 10/s burst 20\n\"two words\": quota 100/day UTC\n# c\nc: sliding-counter 1000/h\n")))

	assert.Equal(t, []limitfile.Change{
		{Name: "two words", Old: "quota 100/day", New: "quota 3100/month", Rate: 0, Capacity: 30},
		{Name: "new", New: "1/m"},
		{Name: "b", Old: "sliding-log 30/m", New: "sliding-log 30/30s", Rate: 1},
		{Name: "a", Old: "10/s burst 20", New: "5/s burst 30", Rate: -0.5, Capacity: 0.5},
		{Name: "c", Old: "sliding-counter 1000/h", New: "sliding-counter 999/h", Rate: -0.001, Capacity: -0.001},
		{Name: "gone", Old: "1/s"},
	}, before.Changes(parse("\"two words\": quota 3100/month\nnew: 1/m\nb: sliding-log 30/30s\na: 5/s burst 30\nc: sliding-counter 999/h\n")))
}

func TestDescribe_RelativeChanges(t *testing.T) {
	for relative, want := range map[float64]string{0: "same", -0.5: "-50 %", 1: "+100 %", -0.001: "-0.1 %", 0.0049: "+0.49 %", 1e-9: "+1e-07 %", 30: "+3000 %"} {
		assert.Equal(t, want, limitfile.Describe(relative))
	}
}
