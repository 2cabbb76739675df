// Command penstock is what stands beside the library. README.md says what it does.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/penstock-go/penstock/errors"
)

const usage = `usage: penstock <command> [flags]

  simulate   play a trace through rate limits, and tell what each would have refused
  help       print this

"penstock simulate -h" tells its flags.
`

// Exit statuses.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2 // as package flag has it
	exitBadLines = 3 // done, but for lines that are no calls
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprintf(stderr, "%s", usage)
		return exitUsage
	}
	switch args[0] {
	case "simulate":
		return exitStatus(simulate(args[1:], stdin, stdout, stderr), stderr)
	case "help", "-h", "-help", "--help":
		fmt.Fprintf(stdout, "%s", usage)
		return exitDone
	}
	fmt.Fprintf(stderr, "penstock: there is no command %q\n\n%s", args[0], usage)
	return exitUsage
}

// A usageError is a mistake in the arguments.
type usageError struct{ error }

// errBadLines says that there were bad lines, which have been told already.
var errBadLines = errors.New("bad lines")

func exitStatus(err error, stderr io.Writer) int {
	if err == nil {
		return exitDone
	}
	if errors.Is(err, errBadLines) {
		return exitBadLines
	}
	fmt.Fprintln(stderr, "penstock:", err)
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintln(stderr, `"penstock simulate -h" tells more`)
		return exitUsage
	}
	return exitFailed
}
