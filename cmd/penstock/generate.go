package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/penstock-go/penstock/cmd/penstock/internal/codegen"
	"github.com/penstock-go/penstock/errors"
)

const generateUsage = `usage: penstock generate [flags] [Type ...]

Writes the methods DecodeJSON and AppendJSON of struct types, with which the router decodes and
encodes payloads faster than with its JSON library. Without types, it writes them for all message
types of the package: structs with a method MessageType() string. Run it in the directory of the
package, usually by go generate, and again after each change of the types:

  //go:generate go run github.com/penstock-go/penstock/cmd/penstock generate

A message type that generated code does not support keeps the library; the command prints the reason.
If the type was named, that is an error.

Flags:
`

// generate writes the codecs of a package.
func generate(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("generate", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	output := flags.String("o", "penstock_json.go", "name of the `file` to write")
	dir := flags.String("dir", ".", "`directory` of the package")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stdout, "%s", generateUsage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return nil
	}
	if err != nil {
		return usageError{err}
	}
	if filepath.Base(*output) != *output || filepath.Ext(*output) != ".go" {
		return usageError{fmt.Errorf("-o is %q; it must be the name of a Go file in the directory of the package", *output)}
	}
	code, left, err := codegen.Generate(*dir, *output, flags.Args())
	for _, reason := range left {
		fmt.Fprintf(stderr, "penstock: left to the JSON library: %s\n", reason)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*dir, *output), code, 0o644)
}
