package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/limit/limitfile"
)

const limitsUsage = `usage: penstock limits check FILE ...
       penstock limits diff OLD NEW

"check" prints the mistakes in files that package limit/limitfile reads, one per line:
  limits.txt:3: "ten" is not a number of tokens; write digits, such as 10
It does not know the limits of a program: a file with a name that the program does not have, or
without one that it has, is an error when the program starts.

"diff" prints which limits differ between two files, and how their rate and capacity change. The
capacity of a sliding window or a quota is its maximum; its rate is that maximum per window or
period.

The exit status is 1 if a file is not valid or cannot be read, and 2 if the arguments are invalid.
`

// limitsCommand runs "penstock limits".
func limitsCommand(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("limits", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stdout, "%s", limitsUsage)
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	switch files := flags.Args(); {
	case len(files) > 1 && files[0] == "check":
		return checkLimits(files[1:], stdout, stderr)
	case len(files) == 3 && files[0] == "diff":
		return diffLimits(files[1], files[2], stdout, stderr)
	case len(files) > 0 && files[0] == "check":
		return usageError{errors.New("check needs a file, as in penstock limits check limits.txt")}
	case len(files) > 0 && files[0] == "diff":
		return usageError{fmt.Errorf("diff needs two files, as in penstock limits diff old.txt new.txt; it has %d", len(files)-1)}
	default:
		return usageError{errors.New("limits is followed by check or diff")}
	}
}

func checkLimits(paths []string, stdout, stderr io.Writer) error {
	invalid := 0
	for _, path := range paths {
		policies, err := readLimits(path)
		if err != nil {
			invalid++
			printMistakes(stderr, path, err)
			continue
		}
		fmt.Fprintf(stdout, "%s: %s\n", path, counted(int64(policies.Len()), "limit"))
	}
	if invalid > 0 {
		return fmt.Errorf("%d of %s not valid", invalid, counted(int64(len(paths)), "file"))
	}
	return nil
}

// readLimits reads a file, with a bound on its size.
func readLimits(path string) (*limitfile.Policies, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // only read from
	text, err := io.ReadAll(io.LimitReader(file, limitfile.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	return limitfile.Parse(text)
}

// printMistakes prints an error of readLimits as compilers do.
func printMistakes(stderr io.Writer, path string, err error) {
	mistakes := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		mistakes = joined.Unwrap()
	}
	for _, one := range mistakes {
		if line, ok := errors.AsType[*limitfile.InvalidLine](one); ok {
			fmt.Fprintf(stderr, "%s:%d: %v\n", path, line.Line, line.Err)
		} else {
			fmt.Fprintf(stderr, "%s: %v\n", path, one)
		}
	}
}

func diffLimits(oldPath, newPath string, stdout, stderr io.Writer) error {
	before, err := readLimits(oldPath)
	if err != nil {
		printMistakes(stderr, oldPath, err)
		return errors.New("no comparison: a file is not valid")
	}
	later, err := readLimits(newPath)
	if err != nil {
		printMistakes(stderr, newPath, err)
		return errors.New("no comparison: a file is not valid")
	}
	changes := before.Changes(later)
	if len(changes) == 0 {
		fmt.Fprintln(stdout, "no limit differs")
		return nil
	}
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "limit\told\tnew\trate\tcapacity")
	for _, c := range changes {
		switch {
		case c.Old == "":
			fmt.Fprintf(table, "%s\t-\t%s\tadded\n", c.Name, c.New)
		case c.New == "":
			fmt.Fprintf(table, "%s\t%s\t-\tremoved\n", c.Name, c.Old)
		default:
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Name, c.Old, c.New, direction(c.Rate), direction(c.Capacity))
		}
	}
	return table.Flush()
}

// direction describes a relative change.
func direction(relative float64) string {
	switch text := limitfile.Describe(relative); {
	case relative < 0:
		return "smaller, " + text
	case relative > 0:
		return "larger, " + text
	default:
		return text
	}
}
