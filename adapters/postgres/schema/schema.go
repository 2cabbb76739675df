// Package schema has the tables and functions of package adapters/postgres as SQL, for tools that
// apply migrations themselves. postgres.Migrate applies them, too.
package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

// DefaultName is the PostgreSQL schema of the tables if none is given.
const DefaultName = "penstock"

// files are the migrations, in their order. The name of each begins with its version. Their
// statements name the schema penstock.
//
//go:embed *.sql
var files embed.FS

// A Migration changes the schema from one version to the next.
type Migration struct {
	Version int // from 1
	Name    string
	SQL     string // statements for one transaction, which also record the version
}

// MaxNameBytes bounds the name of a PostgreSQL schema: of a longer one, PostgreSQL ignores the rest, so
// two of them could be one schema.
const MaxNameBytes = 63

// Check returns an error if the name of a PostgreSQL schema is too long, or has a NUL. "" is
// [DefaultName].
func Check(name string) error {
	if len(name) > MaxNameBytes || strings.Contains(name, "\x00") {
		return fmt.Errorf("the name of a PostgreSQL schema must have at most %d bytes and no NUL, unlike %q", MaxNameBytes, name)
	}
	return nil
}

// Migrations returns all migrations for a PostgreSQL schema, whose name is quoted where necessary.
// "" is [DefaultName].
func Migrations(name string) []Migration {
	names, err := fs.Glob(files, "*.sql") // sorted
	if err != nil {
		panic(err)
	}
	all := make([]Migration, len(names))
	for i, file := range names {
		sql, err := files.ReadFile(file)
		if err != nil {
			panic(err)
		}
		all[i] = Migration{Version: i + 1, Name: strings.TrimSuffix(file, ".sql")}
		record := fmt.Sprintf("INSERT INTO penstock.schema_version (version) VALUES (%d);\n", i+1)
		all[i].SQL = Qualify(string(sql)+record, name)
		if i == 0 {
			all[i].SQL = "CREATE SCHEMA IF NOT EXISTS " + Quote(name) + ";\n" +
				Qualify("CREATE TABLE penstock.schema_version (version int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());\n", name) + all[i].SQL
		}
	}
	return all
}

// LockTimeout is how long a migration waits for a lock, for which others then wait, too.
const LockTimeout = "3s"

// SQL returns the statements that change a schema from a version to the newest one: from 0, they
// create it. Each migration is a transaction.
func SQL(name string, from int) string {
	var b strings.Builder
	for _, m := range Migrations(name)[from:] {
		fmt.Fprintf(&b, "-- %s\nBEGIN;\nSET LOCAL lock_timeout = '%s';\n%sCOMMIT;\n", m.Name, LockTimeout, m.SQL)
	}
	return b.String()
}

// Qualify replaces the schema penstock of statements by another one, also at the beginning of a
// string.
func Qualify(sql, name string) string {
	quoted := Quote(name)
	return strings.NewReplacer("'penstock.", "'"+strings.ReplaceAll(quoted, "'", "''")+".", "penstock.", quoted+".").Replace(sql)
}

// Quote returns a name as an SQL identifier. "" is [DefaultName].
func Quote(name string) string {
	if name == "" {
		name = DefaultName
	}
	return `"` + strings.ReplaceAll(strings.ReplaceAll(name, "\x00", ""), `"`, `""`) + `"`
}
