// Command mutants checks that the simulations of internal/simtest find faults: it puts known faults into the product, one at a
// time, and prints which seed finds each.
//
//	go run ./internal/simtest/mutants [-seeds 200] [-run regexp]
//
// The mutants are in internal/simtest/testdata/mutants.txt. Nothing in the module is changed: the compiler gets the changed file
// from a temporary folder. The command fails if a mutant cannot be applied or compiled, or if none of the seeds and scenarios finds it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const mutantsFile = "internal/simtest/testdata/mutants.txt"

func main() {
	seeds := flag.Uint("seeds", 200, "how many seeds each mutant has")
	only := flag.String("run", "", "only the mutants whose names match this regular expression")
	flag.Parse()
	if err := run(*seeds, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(seeds uint, only string) error {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	mutants, err := read(".")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	found, survived, broken := 0, 0, 0
	for _, m := range mutants {
		if !chosen.MatchString(m.name) {
			continue
		}
		began := time.Now()
		verdict, err := m.try(dir, seeds)
		switch {
		case err != nil:
			broken++
			verdict = "ERROR: " + err.Error()
		case verdict == "":
			survived++
			verdict = "SURVIVED"
		default:
			found++
		}
		fmt.Fprintf(os.Stdout, "%-34s %-24s %4.0fs  %s\n", m.name, verdict, time.Since(began).Seconds(), m.about)
	}
	fmt.Fprintf(os.Stdout, "%d found, %d survived, %d errors\n", found, survived, broken)
	if survived > 0 || broken > 0 || found == 0 {
		return fmt.Errorf("not all mutants are found")
	}
	return nil
}

// try runs the seeds, and after them the scenarios, with a mutant. It returns what finds it, or "" if nothing does.
func (m mutant) try(dir string, seeds uint) (verdict string, err error) {
	binary := filepath.Join(dir, "simtest.test")
	if err := m.build(dir, binary); err != nil {
		return "", err
	}
	out, ok := simulate(binary, "-test.run=^TestSeeds$", "-stop", fmt.Sprintf("-seeds=%d", seeds))
	if !ok {
		return verdictOf(out), nil
	}
	if out, ok = simulate(binary, "-test.run=^TestScenario"); !ok {
		return verdictOf(out), nil
	}
	return "", nil
}

// build compiles the tests with a mutant.
func (m mutant) build(dir, binary string) error {
	source, err := m.apply(".")
	if err != nil {
		return err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return err
	}
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(changed, []byte(source), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-tags=simulatedpoll", "-overlay="+overlay, "-o="+binary, "./internal/simtest") //nolint:gosec // all of it is ours
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// simulate runs tests, and reports whether they pass.
func simulate(binary string, args ...string) (out string, ok bool) {
	cmd := exec.Command(binary, append(args, "-test.v", "-test.failfast", "-test.timeout=20m")...) //nolint:gosec // it is what build has made
	cmd.Dir = filepath.Dir("internal/simtest/simtest_test.go")
	b, err := cmd.CombinedOutput()
	return string(b), err == nil
}

var (
	begun  = regexp.MustCompile(`seed (\d+) begins`)
	failed = regexp.MustCompile(`seed (\d+) \([a-z]+\):\n`)
	hangs  = regexp.MustCompile(`the simulation of seed (\d+) .*has not ended`)
	test   = regexp.MustCompile(`--- FAIL: (\w+)`)
	rare   = regexp.MustCompile(`\d+ of \d+ seeds have failed`)
)

// verdictOf returns what has failed according to the output of tests.
func verdictOf(out string) string {
	if m := failed.FindStringSubmatch(out); m != nil {
		return "seed " + m[1]
	}
	if m := hangs.FindStringSubmatch(out); m != nil {
		return "seed " + m[1] + " (hangs)"
	}
	if m := rare.FindString(out); m != "" {
		return m
	}
	all := begun.FindAllStringSubmatch(out, -1)
	switch m := test.FindStringSubmatch(out); {
	case strings.Contains(out, "test timed out after") && len(all) > 0:
		return "seed " + all[len(all)-1][1] + " (hangs)"
	case strings.Contains(out, "\npanic: ") && len(all) > 0, strings.Contains(out, "\nfatal error: ") && len(all) > 0:
		return "seed " + all[len(all)-1][1] + " (panics)"
	case m != nil:
		return m[1]
	}
	return "the tests end early"
}
