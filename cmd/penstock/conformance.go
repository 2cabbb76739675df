package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/conformance"
)

const conformanceUsage = `usage: penstock conformance [flags] -- driver [argument ...]

Runs the scenarios of docs/client-scenarios.md against a client in any language, which the driver
operates: a program that reads commands from standard input and prints events. Each scenario starts
the driver anew. docs/writing-a-client.md describes both.

Prints a matrix and the first difference of each scenario that failed. The exit status is 1 if a
scenario of a level that the driver claims has failed. The levels are minimal, calls, streams,
topics, recovery, sessions and pacing.

Flags:
`

// Outcomes of a scenario.
const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

// scenarioLimit is how long the client has, by its own clock, for what must happen.
const scenarioLimit = 2 * time.Minute

// leastLimit is the same for the runner, so that a fast clock is no problem on a busy machine.
const leastLimit = 30 * time.Second

// A conformanceRun has the flags of the command.
type conformanceRun struct {
	levels   []string // nil: those that the driver claims
	pattern  *regexp.Regexp
	cbor     bool
	json     bool
	verbose  bool
	timeout  time.Duration
	parallel int
	driver   []string
	stderr   io.Writer
}

// A scenarioReport is the outcome of a scenario.
type scenarioReport struct {
	Number     int      `json:"number"`
	Name       string   `json:"name"`
	Level      string   `json:"level"`
	Outcome    string   `json:"outcome"`
	Place      string   `json:"place,omitempty"`
	Step       string   `json:"step,omitempty"`
	Problem    string   `json:"problem,omitempty"`
	Transcript []string `json:"transcript,omitempty"`
}

// conform runs the command.
func conform(args []string, stdout, stderr io.Writer) error {
	c, err := parseConformance(args, stdout, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	greeting, err := c.greeting()
	if err != nil {
		return err
	}
	if c.cbor && !slices.Contains(greeting.Formats, "cbor") {
		return errors.New("the driver does not have the format cbor; its greeting would say so in formats")
	}
	reports := c.all(greeting)
	if c.json {
		err = printJSON(stdout, greeting, reports)
	} else {
		err = c.print(stdout, greeting, reports)
	}
	if err != nil {
		return err
	}
	for _, r := range reports {
		if r.Outcome == failed && slices.Contains(greeting.Levels, r.Level) {
			return errors.New("a scenario of a level that the driver claims has failed")
		}
	}
	return nil
}

func parseConformance(args []string, stdout, stderr io.Writer) (*conformanceRun, error) {
	c := &conformanceRun{stderr: &lockedWriter{to: stderr}}
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Func("level", "run the scenarios of a `level`; may be repeated. The default are those that the driver claims", func(text string) error {
		if !slices.Contains(conformance.Levels(), text) {
			return fmt.Errorf("there is no level %q; levels are %s", text, strings.Join(conformance.Levels(), ", "))
		}
		c.levels = append(c.levels, text)
		return nil
	})
	flags.Func("run", "run the scenarios whose number and name match a `regexp`, such as '^68 '", func(text string) (err error) {
		c.pattern, err = regexp.Compile(text)
		return err
	})
	flags.BoolVar(&c.cbor, "cbor", false, "run the scenarios with payloads in CBOR")
	flags.BoolVar(&c.json, "json", false, "print the report as JSON")
	flags.BoolVar(&c.verbose, "v", false, "print whole transcripts, not only their last 20 lines")
	flags.DurationVar(&c.timeout, "timeout", 3*time.Minute, "`time` after which a scenario fails and its driver is killed")
	flags.IntVar(&c.parallel, "parallel", 8, "how many scenarios run at the same time")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stdout, "%s", conformanceUsage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return nil, err
	}
	c.driver = flags.Args()
	switch {
	case err != nil:
		return nil, usageError{err}
	case len(c.driver) == 0:
		return nil, usageError{errors.New("no driver; give its command after --, such as -- python3 driver.py")}
	case c.timeout <= 0 || c.parallel <= 0:
		return nil, usageError{errors.New("-timeout and -parallel must be more than 0")}
	}
	return c, nil
}

func (c *conformanceRun) start() (*conformance.Process, error) {
	command := exec.Command(c.driver[0], c.driver[1:]...)
	command.Stderr = c.stderr
	return conformance.StartProcess(command, c.timeout)
}

// greeting starts the driver once, to learn what it claims.
func (c *conformanceRun) greeting() (*conformance.Greeting, error) {
	d, err := c.start()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.driver[0], err)
	}
	d.Stop()
	return &d.Greeting, nil
}

// all runs the scenarios, and returns their outcomes in the order of the list.
func (c *conformanceRun) all(g *conformance.Greeting) []scenarioReport {
	levels := c.levels
	if levels == nil {
		levels = g.Levels
	}
	list := conformance.Scenarios()
	reports := make([]scenarioReport, len(list))
	slots := make(chan struct{}, c.parallel)
	var running sync.WaitGroup
	for i, s := range list {
		reports[i] = scenarioReport{Number: s.Number, Name: s.Name, Level: s.Level, Outcome: skipped}
		if !slices.Contains(levels, s.Level) || c.pattern != nil && !c.pattern.MatchString(fmt.Sprintf("%d %s", s.Number, s.Name)) {
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			c.one(s, &reports[i])
		})
	}
	running.Wait()
	return reports
}

// one runs a scenario.
func (c *conformanceRun) one(s *conformance.Scenario, report *scenarioReport) {
	report.Outcome = failed
	d, err := c.start()
	if err != nil {
		report.Problem = err.Error()
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.Stop()
		report.Problem = err.Error()
		return
	}
	failure := conformance.Run(s, d, conformance.Config{
		Listener: listener, URL: "ws://" + listener.Addr().String() + "/", CBOR: c.cbor, Scale: d.Greeting.Scale,
		Limit: max(leastLimit, scenarioLimit/time.Duration(d.Greeting.Scale)),
	})
	if failure == nil {
		report.Outcome = passed
		return
	}
	report.Place, report.Step, report.Problem, report.Transcript = failure.Place, failure.Step, failure.Problem, failure.Transcript
}

func printJSON(stdout io.Writer, g *conformance.Greeting, reports []scenarioReport) error {
	e := json.NewEncoder(stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Driver    *conformance.Greeting `json:"driver"`
		Scenarios []scenarioReport      `json:"scenarios"`
	}{g, reports})
}

// print prints the failures and then the matrix.
func (c *conformanceRun) print(stdout io.Writer, g *conformance.Greeting, reports []scenarioReport) error {
	counts := map[string]map[string]int{}
	for _, level := range conformance.Levels() {
		counts[level] = map[string]int{}
	}
	for _, r := range reports {
		counts[r.Level][r.Outcome]++
		if r.Outcome == skipped {
			continue
		}
		fmt.Fprintf(stdout, "%-7s %-8s %3d %s\n", r.Outcome, r.Level, r.Number, r.Name)
		if r.Outcome == failed {
			c.printFailure(stdout, &r)
		}
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\nlevel\tpassed\tfailed\tskipped\tclaimed\t\n")
	for _, level := range conformance.Levels() {
		n := counts[level]
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%v\t\n", level, n[passed], n[failed], n[skipped], slices.Contains(g.Levels, level))
	}
	total := map[string]int{}
	for n := range maps.Values(counts) {
		for outcome, k := range n {
			total[outcome] += k
		}
	}
	fmt.Fprintf(table, "all\t%d\t%d\t%d\t\t\n", total[passed], total[failed], total[skipped])
	return table.Flush()
}

func (c *conformanceRun) printFailure(stdout io.Writer, r *scenarioReport) {
	if r.Place != "" {
		fmt.Fprintf(stdout, "  step      %s: %s\n", r.Place, r.Step)
	}
	fmt.Fprintf(stdout, "  problem   %s\n", r.Problem)
	lines := r.Transcript
	if !c.verbose {
		lines = lines[max(0, len(lines)-20):]
	}
	for _, line := range lines {
		fmt.Fprintf(stdout, "  %s\n", line)
	}
}

// A lockedWriter lets drivers that run at the same time share the standard error.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

// Write writes b.
func (w *lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(b)
}
