package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// preamble begins the tests of each module below: the variable again says whether they have run before.
const preamble = `package faulty

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

var (
	again = before()
	_     = fmt.Fprintln
	_     sync.Mutex
	_     time.Duration
)

func before() bool {
	_, err := os.Stat("runs")
	f, _ := os.OpenFile("runs", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	defer f.Close()
	f.WriteString(".")
	return err == nil
}

func TestPasses(t *testing.T) {}
`

// TestGotest_RunsATestThatFailsAgain runs .ci/gotest on modules with each kind of fault. What only
// happens once must be a fault even so.
func TestGotest_RunsATestThatFailsAgain(t *testing.T) {
	programs := linkGate(t)
	for _, tt := range []struct {
		name, source string
		flags        []string
		passes       bool
		runs         int // of the test program
		want         string
		flaky        []string
	}{
		{"passes", `func TestOther(t *testing.T) { t.Log("panic: of another program") }`, nil, true, 1, "DONE 2 tests", nil},
		{"fails once", `func TestFails(t *testing.T) { t.Run("part", func(t *testing.T) { if !again { t.Error("too late") } }) }`, nil, true, 2, "DONE 2 runs", []string{"faulty.TestFails"}},
		{"fails always", `func TestFails(t *testing.T) { t.Error("wrong") }`, nil, false, 3, "FAULT faulty.TestFails: has failed, and has not passed alone", nil},
		{"data race", `func TestFails(t *testing.T) { n := 0; if !again { go func() { n++ }(); n++; time.Sleep(time.Second) } }`, []string{"-race"}, false, 1, "FAULT faulty.TestFails: data race", nil},
		{"panic", `func TestFails(t *testing.T) { if !again { panic("broken") } }`, nil, false, 1, "FAULT faulty.TestFails: panic: broken", nil},
		{"fatal error", `func TestFails(t *testing.T) { if !again { new(sync.Mutex).Unlock() } }`, nil, false, 2, "FAULT faulty.TestFails: fatal error: sync: unlock of unlocked mutex", nil},
		{"leak", `func TestMain(m *testing.M) { m.Run(); if !again { fmt.Println("goroutines are still running:"); os.Exit(1) } }`, nil, false, 2, "FAULT faulty: goroutines are still running", nil},
		{"main fails", `func TestMain(m *testing.M) { m.Run(); if !again { os.Exit(1) } }`, nil, false, 2, "FAULT faulty: fails without a test that fails", nil},
		{"exits", `func TestFails(t *testing.T) { if !again { os.Exit(1) } }` + "\nfunc TestLater(t *testing.T) {}", nil, false, 2, "FAULT faulty.TestFails: has not ended", nil},
		{"is not compiled", `func TestFails(t *testing.T) { undefined() }`, nil, false, 0, "FAULT faulty: fails without a test that fails: FAIL\tfaulty [build failed]", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			module, events := t.TempDir(), t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(module, "go.mod"), []byte("module faulty\n\ngo 1.26\n"), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(module, "faulty_test.go"), []byte(preamble+tt.source), 0o600))
			cmd := exec.CommandContext(t.Context(), "../../.ci/gotest", append([]string{module, "./..."}, tt.flags...)...) //nolint:gosec // the arguments are above
			cmd.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "GATE_EVENTS="+events, "GOFLAGS=-count=1")
			out, err := cmd.CombinedOutput()
			assert.Equal(t, tt.passes, err == nil, "%s", out)
			assert.Contains(t, string(out), tt.want)
			runs, _ := os.ReadFile(filepath.Join(module, "runs")) // there is none if the tests are not compiled
			assert.Len(t, runs, tt.runs, "%s", out)
			files, err := filepath.Glob(events + "/*.json")
			require.NoError(t, err)
			found, err := readRuns(files[0])
			require.NoError(t, err)
			assert.Equal(t, tt.flaky, flaky(found))
		})
	}
}

// TestMain lets the test program be the command, too, if that is its name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "gate" {
		main()
		return
	}
	os.Exit(m.Run())
}

// linkGate returns a folder with the command.
func linkGate(t *testing.T) string {
	if _, err := exec.LookPath("gotestsum"); err != nil {
		t.Skip("gotestsum is not installed; .ci/run installs it")
	}
	folder := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(folder, "gate")))
	return folder
}

func TestReport_CountsFlakyTests(t *testing.T) {
	events, counts := filepath.Join(t.TempDir(), "events.json"), filepath.Join(t.TempDir(), "flaky.txt")
	require.NoError(t, os.WriteFile(events, []byte(`{"Action":"start","Package":"p"}
{"Action":"fail","Package":"p","Test":"TestA","Elapsed":3}
{"Action":"pass","Package":"p","Test":"TestB/sequential","Elapsed":2}
{"Action":"pass","Package":"p","Test":"TestB","Elapsed":4}
{"Action":"pass","Package":"p","Test":"TestC","Elapsed":0}
{"Action":"pass","Package":"p","Test":"TestC/parallel","Elapsed":3.5}
{"Action":"fail","Package":"p","Elapsed":7}
{"Action":"start","Package":"p"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1}
{"Action":"output","Package":"p","Output":"ok  \tp\t1.0s\n"}
{"Action":"pass","Package":"p","Elapsed":1}
`), 0o600))
	for _, want := range []string{"1 p.TestA\n", "2 p.TestA\n"} {
		var out bytes.Buffer
		require.NoError(t, report(counts, []string{events}, &out))
		text, err := os.ReadFile(counts)
		require.NoError(t, err)
		assert.Equal(t, want, string(text))
		assert.Regexp(t, `(?s)4\.0 s  p\.TestB\n +3\.5 s  p\.TestC/parallel\n +3\.0 s  p\.TestA.*ok  \tp\t1\.0s.*1 flaky tests.*p\.TestA`, out.String())
	}
	require.NoError(t, os.WriteFile(counts, []byte("2 p.TestC\n1 p.TestA\n"), 0o600))
	require.NoError(t, report(counts, []string{events}, &bytes.Buffer{}))
	text, err := os.ReadFile(counts)
	require.NoError(t, err)
	assert.Equal(t, "2 p.TestA\n2 p.TestC\n", string(text), "the most frequent first, then by name")
}
