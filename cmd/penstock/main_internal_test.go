package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

// command runs the command in this process.
func command(stdin string, args ...string) (status int, stdout, stderr string) {
	var out, failed bytes.Buffer
	status = run(args, strings.NewReader(stdin), &out, &failed)
	return status, out.String(), failed.String()
}

// TestTheReadmeShowsWhatHappens runs the examples of README.md.
func TestTheReadmeShowsWhatHappens(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	examples := regexp.MustCompile("(?ms)^```console\n\\$ go run -C cmd/penstock \\. (.*?)\n(.*?)^```$").FindAllSubmatch(text, -1)
	require.NotEmpty(t, examples)
	for _, example := range examples {
		line := strings.ReplaceAll(string(example[1]), "evening.svg", filepath.Join(t.TempDir(), "evening.svg"))
		status, stdout, stderr := command("", words(line)...)
		assert.Equal(t, string(example[2]), stdout, line)
		assert.Empty(t, stderr)
		assert.Equal(t, exitDone, status)
	}
}

// words splits a command line as a shell does, if it has but single quotes.
func words(line string) []string {
	var args []string
	for _, word := range regexp.MustCompile(`'[^']*'|[^' ]+`).FindAllString(line, -1) {
		args = append(args, strings.Trim(word, "'"))
	}
	return args
}

const messy = `time,key,cost,type,host
1,ann,1,SAY,x
2,ann,two,SAY,x
2,ann,1,SAY,x
1.5,ann,1,SAY,x
2,bob,9,,x
3,bob
`

func TestBadLinesAreTold(t *testing.T) {
	status, stdout, stderr := command(messy, "simulate", "-policy", "strict: 1/10s", "-")
	assert.Equal(t, exitBadLines, status)
	assert.Equal(t, `standard input:3: cost is "two"; it must be a whole number from 0 to 2^63-1
standard input:7: it has 2 fields; the first line names 5 columns
`, stderr)
	assert.Equal(t, `standard input: 4 calls of 2 keys (each with its type), in 1s from 1970-01-01T00:00:01Z
bad lines: 2 of 7, which were not played
out of order: 1 call, by up to 500ms; 1 of them within their bucket, which count as of its latest time
columns without a meaning here: host

policy         admitted  refused           for good  keys refused            worst wait  p50  p90  p99  max
strict: 1/10s         1        3  75.00 %         1             2  100.00 %          9s    1    2    2    2

for good: the cost is above the capacity; worst wait: of the others; p50 to max: refusals of a key, over all keys
`, stdout)
}

func TestManyBadLinesAreCounted(t *testing.T) {
	status, stdout, stderr := command("time,key\n1,ann\n"+strings.Repeat("x,ann\n", 2000), "simulate", "-policy", "1/s", "-suggest", "p50", "-rate", "1/s")
	assert.Equal(t, exitBadLines, status)
	assert.Equal(t, 11, strings.Count(stderr, "\n"))
	assert.Contains(t, stderr, "\nstandard input: 1,990 more bad lines\n")
	assert.Contains(t, stdout, "bad lines: 2,000 of 2,002, which were not played\n")
	assert.Contains(t, stdout, "It was not played: the trace cannot be read twice, unless it is a file.\n")
}

func TestWhatCannotBeDrawnIsTold(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "plot.svg")
	status, stdout, stderr := command("time,key\n1,ann\n9,ann\n", "simulate", "-suggest", "p50", "-plot", plot)
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stdout, "-policy '10/m burst 1'")
	assert.Contains(t, stderr, "penstock: there is nothing to draw: standard input cannot be read twice")
	assert.NoFileExists(t, plot)

	status, stdout, stderr = command("time,key\n1,ann\n", "simulate", "-policy", "1/s", "-plot", filepath.Join(plot, "x.svg"))
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stdout, "\n1/s ")
	assert.Contains(t, stderr, "x.svg: no such file or directory")
}

func TestLateLinesAreBadLines(t *testing.T) {
	trace := "time,key\n100,ann\n89,ann\n"
	status, _, stderr := command(trace, "simulate", "-policy", "1/s", "-late", "10s")
	assert.Equal(t, exitBadLines, status)
	assert.Contains(t, stderr, "standard input:3: its time, 1970-01-01T00:01:29Z, is 11s before that of an earlier line of the same key; at most 10s are borne")
	status, _, _ = command(trace, "simulate", "-policy", "1/s")
	assert.Equal(t, exitDone, status)
}

func TestTheReportForPrograms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"time":1,"key":"ann"}
{"time":1.5,"key":"ann"}
{"time":3,"key":"bob","cost":7}
{"time":4}
`), 0o600))
	status, stdout, stderr := command("", "simulate", "-json", path, "-policy", "1/s", "-suggest", "p50", "-per", "key")
	assert.Equal(t, exitBadLines, status)
	assert.JSONEq(t, fmt.Sprintf(`{
		"trace": {"name": %q, "per": "key", "lines": 4, "badLines": 1, "calls": 3, "keys": 2,
			"first": "1970-01-01T00:00:01Z", "last": "1970-01-01T00:00:03Z", "unsorted": 0, "furthestMicros": 0, "lateInKey": 0},
		"policies": [{"policy": "1/s", "admitted": 1, "refused": 2, "refusedForGood": 1, "keysRefused": 2,
			"worstWaitMicros": 500000, "refusalsPerKey": {"p50": 1, "p90": 1, "p99": 1, "max": 1}}],
		"suggestion": {"policy": "1/s burst 2", "sharePercent": 50, "withinMicros": 60000000,
			"candidates": [
				{"policy": "1/s burst 2", "keysRefused": 1, "mostWithin": 62, "fillsInMicros": 2000000},
				{"policy": "2/s burst 1", "keysRefused": 1, "mostWithin": 121, "fillsInMicros": 500000}],
			"played": {"policy": "1/s burst 2", "admitted": 2, "refused": 1, "refusedForGood": 1, "keysRefused": 1,
				"worstWaitMicros": 0, "refusalsPerKey": {"p50": 0, "p90": 1, "p99": 1, "max": 1}}}
	}`, path), stdout)
	assert.Equal(t, 1, strings.Count(stderr, "\n"), "a bad line is told once, though the trace is played twice")
}

func TestPoliciesComeFromFilesToo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies")
	require.NoError(t, os.WriteFile(path, []byte("# chat\nchat: 10/s burst 20\n\n  3/m\n"), 0o600))
	status, stdout, _ := command("time,key\n1,ann\n", "simulate", "-policies", path, "-policy", "1/h")
	assert.Equal(t, exitDone, status)
	assert.Regexp(t, `(?s)\nchat: 10/s burst 20 .*\n3/m .*\n1/h `, stdout)

	require.NoError(t, os.WriteFile(path, []byte("# chat\n10 per second\n"), 0o600))
	_, _, stderr := command("", "simulate", "-policies", path)
	assert.Contains(t, stderr, `line 2: ratelimit: policy "10 per second": "10" is not a rate`)
	require.NoError(t, os.WriteFile(path, []byte("# chat\n"), 0o600))
	_, _, stderr = command("", "simulate", "-policies", path)
	assert.Contains(t, stderr, "it names no policy")
}

func TestWrongArgumentsSayWhatWouldBeRight(t *testing.T) {
	for args, want := range map[string]string{
		"":                                       "usage: penstock <command> [flags]",
		"simulat":                                `penstock: there is no command "simulat"`,
		"simulate":                               "there is no policy; give -policy 10/s, -policies file or -suggest p99",
		"simulate -policy 10":                    `invalid value "10" for flag -policy: ratelimit: policy "10": "10" is not a rate`,
		"simulate -suggest p0":                   `"p0" is not a share of the keys`,
		"simulate -policy 1/s -per user":         "write key,type or key or type",
		"simulate -policy 1/s -format xml":       "write csv, jsonl or auto",
		"simulate -policy 1/s -plot a.gif":       `a plot is an .svg or a .png file, not "a.gif"`,
		"simulate -policy 1/s -rate 1/s":         "-rate is for -suggest",
		"simulate -policy 1/s -late -1s":         "-late is -1s; it must not be negative",
		"simulate -suggest p99 -within 0s":       "-within is 0s; it must be more than 0",
		"simulate -policy 1/s a -json b":         "one trace at a time, not 2: a, b",
		"simulate -policies /no/such":            "no such file",
		"simulate -polices x":                    "flag provided but not defined: -polices",
		"simulate -suggest p99 -rate 0/s":        "it must be at least 1 token",
		"simulate -policy 1/s -policy 1234567/s": "cannot be kept exactly",
	} {
		status, stdout, stderr := command("", strings.Fields(args)...)
		assert.Equal(t, exitUsage, status, args)
		assert.Contains(t, stderr, want, args)
		assert.Empty(t, stdout, args)
	}
}

func TestTracesThatCannotBePlayed(t *testing.T) {
	for stdin, want := range map[string]string{
		"":                   "penstock: standard input: the trace is empty\n",
		"time,user\n1,ann\n": "penstock: standard input: line 1: the first line must name the columns",
		"time,key\n":         "penstock: standard input: none of its 1 lines is a call\n",
		"time,key\n1,ann":    "", // which is one
	} {
		status, stdout, stderr := command(stdin, "simulate", "-policy", "1/s")
		if want == "" {
			assert.Equal(t, exitDone, status)
			continue
		}
		assert.Equal(t, exitFailed, status)
		assert.Contains(t, stderr, want)
		assert.Empty(t, stdout)
	}
	status, _, stderr := command("", "simulate", "-policy", "1/s", "/no/such/trace.csv")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stderr, "/no/such/trace.csv")

	var failed bytes.Buffer
	broken := io.MultiReader(strings.NewReader("time,key\n1,ann\n"), iotest.ErrReader(errors.New("broken")))
	assert.Equal(t, exitFailed, run([]string{"simulate", "-policy", "1/s"}, broken, io.Discard, &failed))
	assert.Equal(t, "penstock: standard input: after line 2: broken\n", failed.String())
}

func TestWhatCannotBeSuggestedTakesNothingFromTheRest(t *testing.T) {
	status, stdout, stderr := command("time,key\n1,ann\n", "simulate", "-policy", "1/s", "-suggest", "p99")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stdout, "\n1/s            1        0  0.00 %")
	assert.Contains(t, stderr, "no policy can be suggested")
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"-h"}, {"simulate", "-h"}, {"simulate", "-policy", "1/s", "x", "--help"}} {
		status, stdout, stderr := command("", args...)
		assert.Equal(t, exitDone, status)
		assert.Contains(t, stdout, "usage: penstock ")
		assert.Empty(t, stderr)
		if args[0] == "simulate" {
			assert.Contains(t, stdout, "-suggest p99\n")
		}
	}
}

// A slowReader gives a line of a trace every 300 milliseconds.
type slowReader struct{ left int }

func (r *slowReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	r.left--
	time.Sleep(300 * time.Millisecond)
	return copy(p, "1.00,ann\n"), nil
}

func TestProgressIsToldOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr bytes.Buffer
		in := io.MultiReader(strings.NewReader("time,key\n"), &slowReader{left: 8})
		assert.Equal(t, exitDone, run([]string{"simulate", "-policy", "1/s", "-progress"}, in, io.Discard, &stderr))
		assert.Equal(t, "4 lines, 0.0 MB, 3 lines a second\n8 lines, 0.0 MB, 3 lines a second\n", stderr.String())
	})
}

func TestProgressOnATerminalLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr bytes.Buffer
		m := newMeter(&slowReader{left: 8}, 72, &stderr, true)
		_, err := io.Copy(io.Discard, m)
		require.NoError(t, err)
		m.clear()
		line := "0 lines, 0.0 MB of 0.0 MB (50 %), 0 lines a second"
		assert.Equal(t, "\r"+line+"\r"+strings.Replace(line, "50", "100", 1)+"\r"+strings.Repeat(" ", len(line)+1)+"\r", stderr.String())
	})
}

// TestTheProgram builds the command and runs it as users do.
func TestTheProgram(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "penstock")
	out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)

	plot := filepath.Join(dir, "plot.png")
	trace, err := os.Open("testdata/evening.csv")
	require.NoError(t, err)
	defer func() { _ = trace.Close() }()
	cmd := exec.Command(program, "simulate", "-policy", "6/m burst 10", "-plot", plot)
	cmd.Stdin = trace
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "standard input: 2,119 calls of 41 keys, in 59m57.8s from 2026-09-01T18:00:01.67Z\n")
	picture, err := os.ReadFile(plot)
	require.NoError(t, err)
	assert.True(t, bytes.HasPrefix(picture, []byte("\x89PNG")))

	cmd = exec.Command(program, "simulate", "-policy", "1/s")
	cmd.Stdin = strings.NewReader(messy)
	exit, ok := errors.AsType[*exec.ExitError](cmd.Run())
	require.True(t, ok)
	assert.Equal(t, exitBadLines, exit.ExitCode())
}
