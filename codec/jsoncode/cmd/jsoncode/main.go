// Command jsoncode writes Go code that decodes and encodes message types faster than the router's JSON
// library. docs/guides/faster-json.md describes it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/penstock-go/penstock/codec/jsoncode/internal/codegen"
	"github.com/penstock-go/penstock/errors"
)

const usage = `usage: jsoncode [flags] [Type ...]

Writes the methods DecodeJSON and AppendJSON of struct types, with which the router decodes and
encodes payloads faster than with its JSON library. Without types, it writes them for all message
types of the package: structs with a method MessageType() string. Run it in the directory of the
package, usually by go generate, and again after each change of the types:

  //go:generate go tool jsoncode

A message type that generated code does not support keeps the library; the command prints the reason.
If the type was named, that is an error.

Flags:
`

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2 // as in package flag
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("jsoncode", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	output := flags.String("o", "penstock_json.go", "name of the `file` to write")
	dir := flags.String("dir", ".", "`directory` of the package")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stdout, "%s", usage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return exitOK
	}
	if err == nil && (filepath.Base(*output) != *output || filepath.Ext(*output) != ".go") {
		err = fmt.Errorf("-o is %q; it must be the name of a Go file in the directory of the package", *output)
	}
	if err != nil {
		fmt.Fprintf(stderr, "jsoncode: %v\n\"jsoncode -h\" prints the flags\n", err)
		return exitUsage
	}
	if err := generate(*dir, *output, flags.Args(), stderr); err != nil {
		fmt.Fprintln(stderr, "jsoncode:", err)
		return exitFailed
	}
	return exitOK
}

// generate writes the code of a package.
func generate(dir, output string, types []string, stderr io.Writer) error {
	code, left, err := codegen.Generate(dir, output, types)
	for _, reason := range left {
		fmt.Fprintf(stderr, "jsoncode: left to the JSON library: %s\n", reason)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, output), code, 0o644)
}
