package main

import (
	"flag"
	"fmt"
	"io"

	"github.com/penstock-go/penstock/adapters/postgres/schema"
	"github.com/penstock-go/penstock/errors"
)

const postgresUsage = `usage: penstock postgres schema [flags]

Prints the tables and functions of package adapters/postgres as SQL, for a tool that applies
migrations. Each migration is a transaction, and records its version in the table schema_version.

Flags:
`

// postgresCommand prints the schema of PostgreSQL.
func postgresCommand(args []string, stdout io.Writer) error {
	switch {
	case len(args) > 0 && isHelp(args[0]):
		args = []string{"schema", "-h"}
	case len(args) == 0 || args[0] != "schema":
		return usageError{errors.New(`use "penstock postgres schema"`)}
	}
	newest := len(schema.Migrations(""))
	flags := flag.NewFlagSet("postgres schema", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	name := flags.String("name", schema.DefaultName, "`name` of the PostgreSQL schema")
	from := flags.Int("from", 0, "`version` that the database has; 0 has no schema")
	err := flags.Parse(args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.WriteString(stdout, postgresUsage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return nil
	case err != nil:
		return usageError{err}
	case flags.NArg() > 0:
		return usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	case schema.Check(*name) != nil:
		return usageError{schema.Check(*name)}
	case *from < 0 || *from > newest:
		return usageError{fmt.Errorf("-from is %d; the newest version is %d", *from, newest)}
	}
	_, err = io.WriteString(stdout, schema.SQL(*name, *from))
	return err
}
