package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// resultsFile has the tables of all suites, as they were printed.
const resultsFile = "RESULTS.md"

const resultsHead = `# Results

The tables that the [benchmarks](README.md) print. ` + "`go run -C internal/benchmarks . -update SUITE ...`" + ` replaces the sections of
the suites that it runs, and no others. Sections of different days or machines are not comparable; within a section, compare the
ratios.
`

// A section is what a suite has printed, as Markdown.
type section struct {
	suite string
	lines []string
}

// results are the sections of the file; nil without -update. printed is what the running suite adds.
var (
	results []section
	printed []string
)

// readResults begins an update of the file.
func readResults() {
	results = []section{}
	text, err := os.ReadFile(resultsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	check(err)
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n## ") {
		suite, lines, found := strings.Cut(part, "\n\n")
		if found && !strings.HasPrefix(suite, "# ") {
			results = append(results, section{suite, strings.Split(strings.TrimSpace(lines), "\n")})
		}
	}
}

// printLine prints a line that belongs to no table.
func printLine(format string, values ...any) {
	line := fmt.Sprintf(format, values...)
	fmt.Println(line)
	if n := len(printed); n == 0 || strings.HasPrefix(printed[n-1], "|") {
		printed = append(printed, "")
	}
	printed = append(printed, "- "+line)
}

// publishHead begins a table, and publishRow adds a row to it.
func publishHead(title string, columns []string) {
	printed = append(printed, "", markdownRow(title, columns), markdownRow("---", slices.Repeat([]string{"---"}, len(columns))))
}

func publishRow(name string, values []string) { printed = append(printed, markdownRow(name, values)) }

func markdownRow(first string, others []string) string {
	return "| " + strings.Join(slices.Concat([]string{first}, others), " | ") + " |"
}

// writeResults replaces the section of a suite that has run.
func writeResults(suite string) {
	lines := slices.Concat([]string{"```sh", command, "```", "", machine() + ", " + time.Now().UTC().Format(time.DateOnly)}, printed)
	printed = nil
	if results == nil {
		return
	}
	results = slices.DeleteFunc(results, func(s section) bool { return s.suite == suite })
	results = append(results, section{suite, lines})
	slices.SortFunc(results, func(a, b section) int { return slices.Index(allSuites, a.suite) - slices.Index(allSuites, b.suite) })
	var text strings.Builder
	text.WriteString(resultsHead)
	for _, s := range results {
		fmt.Fprintf(&text, "\n## %s\n\n%s\n", s.suite, strings.Join(s.lines, "\n"))
	}
	check(os.WriteFile(resultsFile, []byte(text.String()), 0o644)) //nolint:gosec // a file of the repository
}

// machine describes what a figure was measured on.
func machine() string {
	model, cpus := processors()
	return fmt.Sprintf("%s, %s/%s, %d CPUs%s", runtime.Version(), runtime.GOOS, runtime.GOARCH, cpus, model)
}

// processors returns the model of the machine's processors, after a comma, and their number, including
// those that this process may not use. The model is "" if the system does not say it.
func processors() (model string, cpus int) {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			model = ", " + strings.TrimSpace(value)
			cpus++
		}
	}
	return model, max(cpus, runtime.NumCPU())
}
