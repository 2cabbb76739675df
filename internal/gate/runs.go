package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
)

// An event is one line of `go test -json`; `go doc test2json` describes it.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // in seconds
}

// name returns the test, or the package if the event is not about one test.
func (e event) name() string {
	if e.Test == "" {
		return e.Package
	}
	return e.Package + "." + e.Test
}

// isPart reports whether a test is part of another one, with which it is run again.
func (e event) isPart() bool { return strings.Contains(e.Test, "/") }

// A run is one execution of the tests of a package: the first has all tests of the package, each
// later one a test that has failed.
type run struct {
	pkg    string
	action string           // pass, fail or skip; empty if the program has not ended
	tests  map[string]event // the last event of each test, and of each of its parts
	line   string           // with which go test reports the package
	took   float64          // seconds
	races  []string         // data races, which are faults in a run that has passed, too
	faults []string         // what else is a fault if the run has failed
}

// readRuns returns the runs of all packages in a file, in the order in which they began.
func readRuns(file string) ([]*run, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it is only read
	var runs []*run
	current := map[string]*run{}
	for in := bufio.NewReader(f); ; {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return runs, nil
		}
		if err != nil {
			return nil, err
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, err
		}
		if e.Package == "" { // output of the compiler, whose failure the package has, too
			continue
		}
		if e.Action == "start" {
			current[e.Package] = &run{pkg: e.Package, tests: map[string]event{}}
			runs = append(runs, current[e.Package])
		}
		if r := current[e.Package]; r != nil {
			r.add(e)
		}
	}
}

func (r *run) add(e event) {
	switch e.Action {
	case "output":
		r.read(e)
	case "run", "pass", "fail", "skip":
		if e.Test == "" {
			r.action, r.took = e.Action, e.Elapsed
		} else {
			r.tests[e.Test] = e
		}
	}
}

// read looks for faults in a line of output. Lines of t.Log are indented, so that a test may log
// what it has expected.
func (r *run) read(e event) {
	switch {
	case e.Test == "" && (strings.HasPrefix(e.Output, "ok  \t") || strings.HasPrefix(e.Output, "FAIL\t")):
		r.line = strings.TrimSpace(e.Output)
	case strings.HasPrefix(e.Output, "WARNING: DATA RACE"):
		r.races = append(r.races, e.name()+": data race")
	case strings.HasPrefix(e.Output, "panic: "), strings.HasPrefix(e.Output, "fatal error: "):
		r.faults = append(r.faults, e.name()+": "+strings.TrimSpace(e.Output))
	case strings.Contains(e.Output, "goroutines are still running"):
		r.faults = append(r.faults, e.name()+": goroutines are still running")
	}
}
