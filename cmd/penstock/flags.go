package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock-go/penstock/cmd/penstock/internal/chart"
	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
	"github.com/penstock-go/penstock/cmd/penstock/internal/trace"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit"
)

const simulateUsage = `usage: penstock simulate [flags] [trace ...]

Replays a trace of requests against rate limit policies, each with its own buckets, and prints
what each policy would have rejected. A trace is one or more files, read in the given order, or a
directory, such as one that package middleware/recorder writes. Without a trace, or with -, it
reads standard input.

A file is CSV or JSON lines. The first line of CSV names the columns time, key, and optionally
cost and type, in any order. JSON lines are objects with members of these names. The time is in
RFC 3339 format, or a number since 1970 in seconds, milliseconds, microseconds or nanoseconds,
recognized by its size. The default cost is 1.

A request that is out of order counts at the latest time of its bucket. Invalid lines are
printed and counted; the exit status is then 3.

A policy is a limit, or several limits joined by +, which must all admit a request. A name and a
colon may precede it:
  10/s burst 20                 token bucket: 20 at once, 10 return per second; without burst, 10
  10/s burst 20 wait 2s         token bucket; requests wait up to 2 seconds for tokens (MaxWait)
  sliding-log 10/m              at most 10 in any minute
  sliding-counter 1000/h        about 1000 in any hour, for any number
  quota 1000/day Europe/Berlin  1000 per calendar hour, day, week or month; without a time zone in UTC
  cooldown 10/m penalty 5m      more than 10 in any minute start a penalty of 5 minutes
  all: 10/s + quota 1000/day    both (limit.AllOf)

Examples:
  penstock simulate -policy 10/s -policy 'strict: 3/m burst 5' -plot out.png trace.csv
  penstock simulate -suggest p99 /var/lib/app/trace

Flags:
`

// A config holds the values of the flags.
type config struct {
	traces   []string // files and directories; none is standard input
	format   trace.Format
	policies []replay.Policy
	per      replay.Per
	late     time.Duration
	json     bool
	plot     string // path; "" draws no plot
	suggest  *replay.Share
	rate     []limit.Policy
	within   time.Duration
	progress bool
}

// parseFlags parses the arguments of simulate. If they ask for help, it prints the help and
// returns flag.ErrHelp.
func parseFlags(args []string, stdout io.Writer) (*config, error) {
	c := &config{format: trace.Auto, per: replay.PerKeyAndType}
	flags := c.flagSet()
	var files []string
	for rest := args; ; rest = flags.Args()[1:] { // flags may follow the trace
		if err := flags.Parse(rest); errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(stdout, "%s", simulateUsage)
			flags.SetOutput(stdout)
			flags.PrintDefaults()
			return nil, err
		} else if err != nil {
			return nil, usageError{err}
		}
		if flags.NArg() == 0 {
			break
		}
		files = append(files, flags.Arg(0))
	}
	if slices.Contains(files, "-") {
		if len(files) > 1 {
			return nil, usageError{errors.New("- (standard input) cannot be combined with files")}
		}
		files = nil
	}
	c.traces = files
	return c, c.check()
}

func (c *config) flagSet() *flag.FlagSet {
	flags := flag.NewFlagSet("penstock simulate", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Func("policy", "a `policy` to simulate, such as 10/s, '10/s burst 20' or 'chat: sliding-log 100/1h30m'; may be repeated", c.addPolicy)
	flags.Func("policies", "a `file` with one policy per line; lines that begin with # are comments", c.addPolicies)
	flags.Func("per", "which requests share a bucket: those with the same `key,type` (default), key or type", func(text string) (err error) {
		c.per, err = replay.ParsePer(text)
		return err
	})
	flags.Func("format", "format of the trace: `csv, jsonl` or auto (default), which detects it from the first line", func(text string) error {
		c.format = trace.Format(text)
		if c.format != trace.Auto && c.format != trace.CSV && c.format != trace.JSONLines {
			return errors.New("must be csv, jsonl or auto")
		}
		return nil
	})
	flags.DurationVar(&c.late, "late", time.Minute, "how far a request may be out of order within its bucket; beyond that, the line is invalid")
	flags.BoolVar(&c.json, "json", false, "print the report as JSON, with durations in microseconds")
	flags.StringVar(&c.plot, "plot", "", "plot demand and admitted requests over time into an .svg or .png `file`")
	flags.Func("suggest", "suggest the smallest policy that never rejects this percentage of the keys, such as `p99`", func(text string) error {
		share, err := replay.ParseShare(text)
		c.suggest = &share
		return err
	})
	flags.Func("rate", "suggest a burst for this `rate`, such as 10/s; the default compares round rates from 1/h to 1000/s", func(text string) error {
		p, err := limit.ParsePolicy(text)
		c.rate = []limit.Policy{p}
		return err
	})
	flags.DurationVar(&c.within, "within", time.Minute, "period by which -suggest compares policies: the smallest admits the fewest tokens per key in it")
	flags.BoolVar(&c.progress, "progress", false, "print progress to standard error even if it is not a terminal")
	return flags
}

func (c *config) addPolicy(text string) error {
	p, err := replay.ParsePolicy(text)
	if err != nil {
		return err
	}
	c.policies = append(c.policies, p)
	return nil
}

// addPolicies reads a file with one policy per line.
func (c *config) addPolicies(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, number := len(c.policies), 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if err := c.addPolicy(line); err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
	}
	if len(c.policies) == before {
		return errors.New("the file contains no policy")
	}
	return nil
}

func (c *config) check() error {
	switch {
	case len(c.policies) == 0 && c.suggest == nil:
		return usageError{errors.New("no policy; give -policy 10/s, -policies file or -suggest p99")}
	case c.rate != nil && c.suggest == nil:
		return usageError{errors.New("-rate requires -suggest; to simulate a policy, give -policy")}
	case c.late < 0:
		return usageError{fmt.Errorf("-late is %v; it must not be negative", c.late)}
	case c.within <= 0:
		return usageError{fmt.Errorf("-within is %v; it must be more than 0", c.within)}
	}
	if c.plot != "" {
		if _, err := chart.KindOf(c.plot); err != nil {
			return usageError{err}
		}
	}
	return nil
}
