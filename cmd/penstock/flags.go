package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/penstock-go/penstock/cmd/penstock/internal/chart"
	"github.com/penstock-go/penstock/cmd/penstock/internal/replay"
	"github.com/penstock-go/penstock/cmd/penstock/internal/trace"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/middleware/ratelimit"
)

const simulateUsage = `usage: penstock simulate [flags] [trace]

Plays a trace through policies, each with buckets of its own, and tells what each would
have refused. Without a trace, or with -, it reads standard input.

A trace is CSV, whose first line names the columns time, key, and if need be cost and type,
in any order; or JSON lines, objects with members of these names. The time is of RFC 3339,
or a number since 1970: seconds, or by its size milli-, micro- or nanoseconds. Without
a cost, a call costs 1.

A call that stands after a later one of its bucket counts as of that one's time. Lines that
are no calls are named and counted; the exit status is then 3.

Examples:
  penstock simulate -policy 10/s -policy 'strict: 3/m burst 5' -plot out.png trace.csv
  penstock simulate -suggest p99 trace.csv

Flags:
`

// A config is what the flags say.
type config struct {
	trace    string // "" is standard input
	format   trace.Format
	policies []ratelimit.Policy
	per      replay.Per
	late     time.Duration
	json     bool
	plot     string // "" is none
	suggest  *replay.Share
	rate     []ratelimit.Policy
	within   time.Duration
	progress bool
}

// parseFlags reads the arguments of simulate. Asked for help, it prints it and returns
// flag.ErrHelp.
func parseFlags(args []string, stdout io.Writer) (*config, error) {
	c := &config{format: trace.Auto, per: replay.PerKeyAndType}
	flags := c.flagSet()
	var files []string
	for rest := args; ; rest = flags.Args()[1:] { // flags may stand after the trace too
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
	switch {
	case len(files) > 1:
		return nil, usageError{fmt.Errorf("one trace at a time, not %d: %s", len(files), strings.Join(files, ", "))}
	case len(files) == 1 && files[0] != "-":
		c.trace = files[0]
	}
	return c, c.check()
}

func (c *config) flagSet() *flag.FlagSet {
	flags := flag.NewFlagSet("penstock simulate", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Func("policy", "a `policy` such as 10/s, '10/s burst 20' or 'chat: 100/1h30m burst 5'; may be given several times", c.addPolicy)
	flags.Func("policies", "a `file` with a policy in each line; lines that begin with # are comments", c.addPolicies)
	flags.Func("per", "what a bucket is for: `key,type` (the default, as in the library), key or type", func(text string) (err error) {
		c.per, err = replay.ParsePer(text)
		return err
	})
	flags.Func("format", "`csv, jsonl` or auto (the default), which looks at the first line", func(text string) error {
		c.format = trace.Format(text)
		if c.format != trace.Auto && c.format != trace.CSV && c.format != trace.JSONLines {
			return errors.New("write csv, jsonl or auto")
		}
		return nil
	})
	flags.DurationVar(&c.late, "late", time.Minute, "how far a line may be behind the latest one of its bucket; beyond, it is a bad line")
	flags.BoolVar(&c.json, "json", false, "report in JSON, with waits in microseconds")
	flags.StringVar(&c.plot, "plot", "", "draw demand against admission over time into an .svg or .png `file`")
	flags.Func("suggest", "suggest the smallest policy that never refuses so many percent of the keys, such as `p99`", func(text string) error {
		share, err := replay.ParseShare(text)
		c.suggest = &share
		return err
	})
	flags.Func("rate", "suggest the burst at this `rate`, such as 10/s; without it, round rates from 1/h to 1000/s are compared", func(text string) error {
		p, err := ratelimit.ParsePolicy(text)
		c.rate = []ratelimit.Policy{p}
		return err
	})
	flags.DurationVar(&c.within, "within", time.Minute, "the smallest policy is the one that lets a key take the least in this time")
	flags.BoolVar(&c.progress, "progress", false, "tell progress on standard error even if that is no terminal")
	return flags
}

func (c *config) addPolicy(text string) error {
	p, err := ratelimit.ParsePolicy(text)
	if err != nil {
		return err
	}
	c.policies = append(c.policies, p)
	return nil
}

// addPolicies reads a file of policies.
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
		return errors.New("it names no policy")
	}
	return nil
}

// check returns what is wrong with flags that are right one by one.
func (c *config) check() error {
	switch {
	case len(c.policies) == 0 && c.suggest == nil:
		return usageError{errors.New("there is no policy; give -policy 10/s, -policies file or -suggest p99")}
	case c.rate != nil && c.suggest == nil:
		return usageError{errors.New("-rate is for -suggest; for a policy to play, give -policy")}
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
