package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
	"github.com/penstock-go/penstock/cmd/penstock/internal/trace"
	"github.com/penstock-go/penstock/errors"
)

// command runs the command in this process.
func command(stdin string, args ...string) (status int, stdout, stderr string) {
	var out, failed bytes.Buffer
	status = run(args, strings.NewReader(stdin), &out, &failed)
	return status, out.String(), failed.String()
}

// TestReadme_ExamplesMatchOutput runs the examples of README.md. The picture that one of them draws is
// docs/guides/demand.svg.
func TestReadme_ExamplesMatchOutput(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	examples := regexp.MustCompile("(?ms)^```console\n\\$ go run -C cmd/penstock \\. (.*?)\n(.*?)^```$").FindAllSubmatch(text, -1)
	require.NotEmpty(t, examples)
	for _, example := range examples {
		plot := filepath.Join(t.TempDir(), "evening.svg")
		line := strings.ReplaceAll(string(example[1]), "evening.svg", plot)
		status, stdout, stderr := command("", words(line)...)
		assert.Equal(t, string(example[2]), stdout, line)
		assert.Empty(t, stderr)
		assert.Equal(t, exitOK, status)
		if !strings.Contains(line, plot) {
			continue
		}
		drawn, err := os.ReadFile(plot)
		require.NoError(t, err)
		picture, err := os.ReadFile("../../docs/guides/demand.svg")
		require.NoError(t, err)
		assert.Equal(t, string(picture), string(drawn), "docs/guides/demand.svg is not current")
	}
}

// words splits a command line that contains only plain words and single quotes.
func words(line string) []string {
	var args []string
	for _, word := range regexp.MustCompile(`'[^']*'|[^' ]+`).FindAllString(line, -1) {
		args = append(args, strings.Trim(word, "'"))
	}
	return args
}

const messyTrace = `time,key,cost,type,host
1,ann,1,SAY,x
2,ann,two,SAY,x
2,ann,1,SAY,x
1.5,ann,1,SAY,x
2,bob,9,,x
3,bob
`

func TestSimulate_PrintsInvalidLines(t *testing.T) {
	status, stdout, stderr := command(messyTrace, "simulate", "-policy", "strict: 1/10s", "-")
	assert.Equal(t, exitInvalidLines, status)
	assert.Equal(t, `standard input:3: cost is "two"; it must be a whole number from 0 to 2^63-1
standard input:7: line has 2 fields; the first line names 5 columns
`, stderr)
	assert.Equal(t, `standard input: 4 requests of 2 keys (key and type), in 1s from 1970-01-01T00:00:01Z
invalid lines: 2 of 7, skipped
out of order: 1 request, by up to 500ms; 1 of them within their bucket, counted at its latest time
ignored columns: host

policy         admitted  rejected           never admitted  keys rejected            worst wait  p50  p90  p99  max
strict: 1/10s         1         3  75.00 %               1              2  100.00 %          9s    1    2    2    2

never admitted: the cost exceeds the capacity or maximum; worst wait: of the other rejections; p50 to max: rejections per key
`, stdout)
}

func TestSimulate_CountsManyInvalidLines(t *testing.T) {
	status, stdout, stderr := command("time,key\n1,ann\n"+strings.Repeat("x,ann\n", 2000), "simulate", "-policy", "1/s", "-suggest", "p50", "-rate", "1/s")
	assert.Equal(t, exitInvalidLines, status)
	assert.Equal(t, 11, strings.Count(stderr, "\n"))
	assert.Contains(t, stderr, "\nstandard input: 1,990 more invalid lines\n")
	assert.Contains(t, stdout, "invalid lines: 2,000 of 2,002, skipped\n")
	assert.Contains(t, stdout, "No result for this policy: the trace is not a file and cannot be read twice.\n")
}

func TestSimulate_FailsIfNothingCanBePlotted(t *testing.T) {
	plot := filepath.Join(t.TempDir(), "plot.svg")
	status, stdout, stderr := command("time,key\n1,ann\n9,ann\n", "simulate", "-suggest", "p50", "-plot", plot)
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stdout, "-policy '10/m burst 1'")
	assert.Contains(t, stderr, "penstock: nothing to plot: standard input cannot be read twice")
	assert.NoFileExists(t, plot)

	status, stdout, stderr = command("time,key\n1,ann\n", "simulate", "-policy", "1/s", "-plot", filepath.Join(plot, "x.svg"))
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stdout, "\n1/s ")
	assert.Contains(t, stderr, "x.svg: no such file or directory")
}

func TestSimulate_LateLinesAreInvalid(t *testing.T) {
	late := "time,key\n100,ann\n89,ann\n"
	status, _, stderr := command(late, "simulate", "-policy", "1/s", "-late", "10s")
	assert.Equal(t, exitInvalidLines, status)
	assert.Contains(t, stderr, "standard input:3: time 1970-01-01T00:01:29Z is 11s before that of an earlier line of the same key; it must be at most 10s")
	status, _, _ = command(late, "simulate", "-policy", "1/s")
	assert.Equal(t, exitOK, status)
}

func TestSimulate_JSONReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"time":1,"key":"ann"}
{"time":1.5,"key":"ann"}
{"time":3,"key":"bob","cost":7}
{"time":4}
`), 0o600))
	status, stdout, stderr := command("", "simulate", "-json", path, "-policy", "1/s", "-suggest", "p50", "-per", "key")
	assert.Equal(t, exitInvalidLines, status)
	assert.JSONEq(t, fmt.Sprintf(`{
		"trace": {"name": %q, "per": "key", "lines": 4, "invalidLines": 1, "requests": 3, "keys": 2,
			"first": "1970-01-01T00:00:01Z", "last": "1970-01-01T00:00:03Z", "outOfOrder": 0, "maxLatenessMicros": 0, "lateInBucket": 0},
		"policies": [{"policy": "1/s", "admitted": 1, "delayed": 0, "longestDelayMicros": 0, "rejected": 2, "neverAdmitted": 1, "keysRejected": 2,
			"worstWaitMicros": 500000, "overflowed": 0, "rejectionsPerKey": {"p50": 1, "p90": 1, "p99": 1, "max": 1}}],
		"suggestion": {"policy": "1/s burst 2", "sharePercent": 50, "withinMicros": 60000000,
			"candidates": [
				{"policy": "1/s burst 2", "keysRejected": 1, "maxWithin": 62, "fullAfterMicros": 2000000},
				{"policy": "2/s burst 1", "keysRejected": 1, "maxWithin": 121, "fullAfterMicros": 500000}],
			"result": {"policy": "1/s burst 2", "admitted": 2, "delayed": 0, "longestDelayMicros": 0, "rejected": 1, "neverAdmitted": 1, "keysRejected": 1,
				"worstWaitMicros": 0, "overflowed": 0, "rejectionsPerKey": {"p50": 0, "p90": 1, "p99": 1, "max": 1}}}
	}`, path), stdout)
	assert.Equal(t, 1, strings.Count(stderr, "\n"), "an invalid line must be printed once although the trace is read twice")
}

func TestSimulate_ReportsDelaysOnlyIfThereAreAny(t *testing.T) {
	const burst = "time,key\n1,ann\n1,ann\n1,ann\n"
	status, stdout, _ := command(burst, "simulate", "-policy", "1/s wait 1s", "-policy", "sliding-log 2/m")
	assert.Equal(t, exitOK, status)
	assert.Contains(t, stdout, `
policy           admitted  delayed  longest delay  rejected           never admitted  keys rejected            worst wait  p50  p90  p99  max
1/s wait 1s             2        1             1s         1  33.33 %               0              1  100.00 %          1s    1    1    1    1
sliding-log 2/m         2        0             0s         1  33.33 %               0              1  100.00 %          1m    1    1    1    1
`)
	assert.Contains(t, stdout, "\ndelayed: admitted after a wait, of at most the longest delay\n")

	_, stdout, _ = command(burst, "simulate", "-policy", "sliding-log 2/m")
	assert.NotContains(t, stdout, "delay")
	assert.NotContains(t, stdout, "overflowed")

	_, stdout, _ = command(burst, "simulate", "-json", "-policy", "two: 1/s + quota 2/day wait 1s")
	assert.Empty(t, stdout)
	_, stdout, _ = command(burst, "simulate", "-json", "-policy", "1/s wait 1s")
	assert.Contains(t, stdout, `"policy": "1/s wait 1s",
      "admitted": 2,
      "delayed": 1,
      "longestDelayMicros": 1000000,
`)
}

func TestSimulate_ReportsOverflowedRequests(t *testing.T) {
	var lines strings.Builder
	lines.WriteString("time,key\n")
	for i := range 70_000 {
		fmt.Fprintf(&lines, "1,user%d\n", i)
	}
	_, stdout, _ := command(lines.String(), "simulate", "-policy", "cooldown 5/h penalty 1h")
	assert.Regexp(t, `p99  max  overflowed\ncooldown .* [4-6],\d\d\d\n`, stdout)
	assert.Contains(t, stdout, "\noverflowed: requests of keys beyond the maximum that the limiter keeps; they share the limit of one key\n")

	_, stdout, _ = command(lines.String(), "simulate", "-json", "-policy", "cooldown 5/h penalty 1h")
	assert.Regexp(t, `"overflowed": [4-6]\d\d\d,`, stdout)
}

func TestPanelsOf_PlotsTheAdmittedRequestsOfEachPolicy(t *testing.T) {
	var policies []replay.Policy
	for _, text := range []string{"10/m", "sliding-log 2/m", "10/s + quota 1/day"} {
		policy, err := replay.ParsePolicy(text)
		require.NoError(t, err)
		policies = append(policies, policy)
	}
	r := replay.New(replay.Options{Policies: policies})
	for range 3 {
		require.NoError(t, r.Add(trace.Record{Micros: 1, Key: "ann", Cost: 1}))
	}
	panels := panelsOf(r, policies)
	for i, want := range []float64{3, 2, 1} {
		assert.Equal(t, []float64{want}, panels[i].Admitted, panels[i].Title)
		assert.Equal(t, []float64{3}, panels[i].Demand, panels[i].Title)
	}
}

func TestSimulate_ReadsPoliciesFromFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies")
	require.NoError(t, os.WriteFile(path, []byte("# chat\nchat: 10/s burst 20\n\n  3/m\nquota 9/day\nall: 3/m + sliding-log 9/h\n"), 0o600))
	status, stdout, _ := command("time,key\n1,ann\n", "simulate", "-policies", path, "-policy", "1/h")
	assert.Equal(t, exitOK, status)
	assert.Regexp(t, `(?s)\nchat: 10/s burst 20 .*\n3/m .*\nquota 9/day .*\nall: 3/m \+ sliding-log 9/h .*\n1/h `, stdout)

	require.NoError(t, os.WriteFile(path, []byte("# chat\n10 per second\n"), 0o600))
	_, _, stderr := command("", "simulate", "-policies", path)
	assert.Contains(t, stderr, `line 2: policy "10 per second": "10" is not a rate`)
	require.NoError(t, os.WriteFile(path, []byte("# chat\n"), 0o600))
	_, _, stderr = command("", "simulate", "-policies", path)
	assert.Contains(t, stderr, "the file contains no policy")
}

func TestRun_InvalidArgumentsPrintTheCorrection(t *testing.T) {
	for args, want := range map[string]string{
		"":                                       "usage: penstock <command> [flags]",
		"simulat":                                `penstock: unknown command "simulat"`,
		"simulate":                               "no policy; give -policy 10/s, -policies file or -suggest p99",
		"simulate -policy 10":                    `invalid value "10" for flag -policy: policy "10": "10" is not a rate`,
		"simulate -suggest p0":                   `"p0" is not a percentage of the keys`,
		"simulate -policy 1/s -per user":         "must be key,type or key or type",
		"simulate -policy 1/s -format xml":       "must be csv, jsonl or auto",
		"simulate -policy 1/s -plot a.gif":       `plot file "a.gif" must end in .svg or .png`,
		"simulate -policy 1/s -rate 1/s":         "-rate requires -suggest",
		"simulate -policy 1/s -late -1s":         "-late is -1s; it must not be negative",
		"simulate -suggest p99 -within 0s":       "-within is 0s; it must be more than 0",
		"simulate -policy 1/s a -json -":         "- (standard input) cannot be combined with files",
		"simulate -policies /no/such":            "no such file",
		"simulate -polices x":                    "flag provided but not defined: -polices",
		"simulate -suggest p99 -rate 0/s":        "it must be at least 1 token",
		"simulate -policy 1/s -policy 1234567/s": "cannot be counted exactly",
	} {
		status, stdout, stderr := command("", strings.Fields(args)...)
		assert.Equal(t, exitUsage, status, args)
		assert.Contains(t, stderr, want, args)
		assert.Empty(t, stdout, args)
	}
}

func TestSimulate_FailsOnUnusableTraces(t *testing.T) {
	for stdin, want := range map[string]string{
		"":                   "penstock: standard input: the trace is empty\n",
		"time,user\n1,ann\n": "penstock: standard input: line 1: the first line must name the columns",
		"time,key\n":         "penstock: standard input: none of its 1 lines is a valid request\n",
		"time,key\n1,ann":    "", // valid
	} {
		status, stdout, stderr := command(stdin, "simulate", "-policy", "1/s")
		if want == "" {
			assert.Equal(t, exitOK, status)
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

func TestSimulate_PrintsReportIfSuggestionFails(t *testing.T) {
	status, stdout, stderr := command("time,key\n1,ann\n", "simulate", "-policy", "1/s", "-suggest", "p99")
	assert.Equal(t, exitFailed, status)
	assert.Contains(t, stdout, "\n1/s            1         0  0.00 %")
	assert.Contains(t, stderr, "no policy can be suggested")
}

func TestRun_Help(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"-h"}, {"simulate", "-h"}, {"simulate", "-policy", "1/s", "x", "--help"}} {
		status, stdout, stderr := command("", args...)
		assert.Equal(t, exitOK, status)
		assert.Contains(t, stdout, "usage: penstock ")
		assert.Empty(t, stderr)
		if args[0] == "simulate" {
			assert.Contains(t, stdout, "-suggest p99\n")
		}
	}
}

// A slowReader returns one line of a trace every 300 milliseconds.
type slowReader struct{ left int }

func (r *slowReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	r.left--
	time.Sleep(300 * time.Millisecond)
	return copy(p, "1.00,ann\n"), nil
}

func TestSimulate_PrintsProgressOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr bytes.Buffer
		in := io.MultiReader(strings.NewReader("time,key\n"), &slowReader{left: 8})
		assert.Equal(t, exitOK, run([]string{"simulate", "-policy", "1/s", "-progress"}, in, io.Discard, &stderr))
		assert.Equal(t, "4 lines, 0.0 MB, 3 lines/s\n8 lines, 0.0 MB, 3 lines/s\n", stderr.String())
	})
}

func TestMeter_ClearsTheTerminalLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr bytes.Buffer
		m := newMeter(72, &stderr, &statusLine{out: &stderr})
		m.in = &slowReader{left: 8}
		_, err := io.Copy(io.Discard, m)
		require.NoError(t, err)
		m.clear()
		line := "0 lines, 0.0 MB of 0.0 MB (50 %), 0 lines/s"
		assert.Equal(t, "\r"+line+"\r"+strings.Replace(line, "50", "100", 1)+"\r"+strings.Repeat(" ", len(line)+1)+"\r", stderr.String())
	})
}

func TestSimulate_ReadsFilesAndDirectories(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"trace-2.csv": "time,key\n3,ann\n", "trace-1.csv": "key,time\nann,1\nann,x\n", "trace-3.csv": "", "notes.txt": "no trace",
		"trace-4.jsonl": `{"time": 4, "key": "bob"}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	status, stdout, stderr := command("", "simulate", "-policy", "1/h", "-suggest", "p50", "-rate", "1/h", dir)
	assert.Equal(t, exitInvalidLines, status)
	assert.Contains(t, stderr, dir+"/trace-1.csv:3: time is \"x\"; ")
	assert.Contains(t, stdout, dir+"/trace-1.csv and 3 more files: 3 requests of 2 keys, in 3s from 1970-01-01T00:00:01Z\ninvalid lines: 1 of 6, skipped\n")

	file := filepath.Join(dir, "trace-2.csv")
	status, stdout, _ = command("", "simulate", "-policy", "1/h", file, file)
	assert.Equal(t, exitOK, status)
	assert.Contains(t, stdout, "2 requests of 1 key,", "a file is read as often as it is named")

	for want, path := range map[string]string{
		"the directory contains no file that ends in .csv or .jsonl": t.TempDir(),
		"the trace is empty": filepath.Join(dir, "trace-3.csv"),
		"no such file":       filepath.Join(dir, "missing"),
	} {
		status, _, stderr = command("", "simulate", "-policy", "1/h", path)
		assert.Equal(t, exitFailed, status)
		assert.Contains(t, stderr, want)
	}
}
