// Command gate reads the events of `go test -json` that .ci/run has gathered with gotestsum.
//
//	gate check FILE           fails if a test of this group has a fault that a second run would hide
//	gate report FLAKY FILES   prints the slowest and the flaky tests of all groups, and counts the
//	                          flaky ones in the file FLAKY
//
// gotestsum runs a test that fails again, alone, and passes if the test passes then. A data race, a
// panic, a leaked goroutine or an exit in the middle of a test is a fault even so.
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	if err := command(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

func command(args []string, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "check":
		return check(args[1], out)
	case len(args) >= 3 && args[0] == "report":
		return report(args[1], args[2:], out)
	default:
		return fmt.Errorf("usage: gate check FILE, or gate report FLAKY FILES")
	}
}

// check prints the faults of a group, and returns an error if there is one.
func check(file string, out io.Writer) error {
	runs, err := readRuns(file)
	if err != nil {
		return err
	}
	if len(runs) == 0 {
		return fmt.Errorf("%s has no tests", file)
	}
	found := faults(runs)
	for _, fault := range found {
		fmt.Fprintln(out, "FAULT", fault)
	}
	if len(found) > 0 {
		return fmt.Errorf("%d faults", len(found))
	}
	return nil
}
