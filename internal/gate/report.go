package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

const slowest = 10

// report prints the slowest packages and tests and the flaky tests of all groups, and counts the
// flaky ones in a file.
func report(counts string, files []string, out io.Writer) error {
	var runs []*run
	for _, file := range files {
		of, err := readRuns(file)
		if err != nil {
			return err
		}
		runs = append(runs, of...)
	}
	printSlowest(runs, out)
	tests := flaky(runs)
	fmt.Fprintf(out, "\n== %d flaky tests: failed, and passed when they ran alone\n", len(tests))
	for _, name := range tests {
		fmt.Fprintln(out, name)
	}
	text, err := count(counts, tests)
	if err != nil {
		return err
	}
	if len(text) > 0 {
		fmt.Fprintf(out, "\n== %s, with which the next work begins\n%s", counts, text)
	}
	return nil
}

func printSlowest(runs []*run, out io.Writer) {
	var tests []event
	for _, r := range runs {
		for name, e := range r.tests {
			root, _, _ := strings.Cut(name, "/")
			if name == root || e.Elapsed > r.tests[root].Elapsed { // a test does not count its parallel parts
				tests = append(tests, e)
			}
		}
	}
	slices.SortFunc(tests, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	fmt.Fprintln(out, "\n== slowest tests")
	for _, e := range tests[:min(slowest, len(tests))] {
		fmt.Fprintf(out, "%7.1f s  %s\n", e.Elapsed, e.name())
	}
	runs = slices.Clone(runs)
	slices.SortFunc(runs, func(a, b *run) int { return cmp.Compare(b.took, a.took) })
	fmt.Fprintln(out, "\n== slowest packages")
	for _, r := range runs[:min(slowest, len(runs))] {
		fmt.Fprintln(out, r.line)
	}
}

// count adds one to the count of each test in a file of lines such as "3 package.Test", which it
// creates if there is none, and returns its new content: most frequent first.
func count(file string, tests []string) ([]byte, error) {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(tests) == 0 {
		return old, nil
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(old)) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if counts[name], err = strconv.Atoi(number); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	for _, name := range tests {
		counts[name]++
	}
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var text bytes.Buffer
	for _, name := range names {
		fmt.Fprintf(&text, "%d %s\n", counts[name], name)
	}
	return text.Bytes(), os.WriteFile(file, text.Bytes(), 0o644)
}
