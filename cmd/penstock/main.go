// Command penstock is the command-line tool of the library. README.md describes it.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	_ "time/tzdata" // for quotas, on systems without a time zone database

	"github.com/penstock-go/penstock/errors"
)

const usage = `usage: penstock <command> [flags]

  simulate     replay a trace against rate limits and print what each would have rejected
  load         send messages to a server at a fixed rate and measure the answers
  limits       check files with limits, and compare them
  types        print TypeScript types for the messages of a running server
  asyncapi     print an AsyncAPI 3 document for the messages of a running server
  schema       print a JSON Schema for the messages of a running server
  postgres     print the schema of adapters/postgres as SQL
  conformance  run scenarios against a client in any language
  version      print the version of this program
  help         print this help, or that of a command: penstock help load
`

// Exit statuses.
const (
	exitOK           = 0
	exitFailed       = 1
	exitUsage        = 2 // as in package flag
	exitInvalidLines = 3 // the simulation succeeded, but skipped invalid lines
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprintf(stderr, "%s", usage)
		return exitUsage
	}
	if args[0] == "help" && len(args) == 2 && !isHelp(args[1]) {
		args = []string{args[1], "-h"}
	}
	switch args[0] {
	case "simulate":
		return exitStatus(args[0], simulate(args[1:], stdin, stdout, stderr), stderr)
	case "load":
		return exitStatus(args[0], loadCommand(args[1:], stdin, stdout, stderr), stderr)
	case "limits":
		return exitStatus(args[0], limitsCommand(args[1:], stdout, stderr), stderr)
	case "types":
		return exitStatus(args[0], typesCommand().run(args[1:], stdout), stderr)
	case "asyncapi":
		return exitStatus(args[0], asyncapiCommand().run(args[1:], stdout), stderr)
	case "schema":
		return exitStatus(args[0], schemaCommand().run(args[1:], stdout), stderr)
	case "postgres":
		return exitStatus(args[0], postgresCommand(args[1:], stdout), stderr)
	case "conformance":
		return exitStatus(args[0], conform(args[1:], stdout, stderr), stderr)
	case "version":
		fmt.Fprintln(stdout, version())
		return exitOK
	case "help", "-h", "-help", "--help":
		fmt.Fprintf(stdout, "%s", usage)
		return exitOK
	}
	fmt.Fprintf(stderr, "penstock: unknown command %q\n\n%s", args[0], usage)
	return exitUsage
}

// isHelp reports whether an argument asks for help.
func isHelp(arg string) bool { return slices.Contains([]string{"help", "-h", "-help", "--help"}, arg) }

// version returns the version of the module, the commit if it is known, and the version of Go.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "penstock, unknown version"
	}
	words := []string{"penstock", info.Main.Version}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			words = append(words, s.Value)
		}
	}
	return strings.Join(append(words, info.GoVersion), " ")
}

// A usageError is a mistake in the arguments.
type usageError struct{ error }

// errInvalidLines means that the trace has invalid lines, which are already printed.
var errInvalidLines = errors.New("invalid lines")

func exitStatus(command string, err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	if errors.Is(err, errInvalidLines) {
		return exitInvalidLines
	}
	fmt.Fprintln(stderr, "penstock:", err)
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintf(stderr, "\"penstock %s -h\" prints the flags\n", command)
		return exitUsage
	}
	return exitFailed
}
