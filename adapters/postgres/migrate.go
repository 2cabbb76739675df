package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-go/penstock/errors"
)

// DefaultSchema is the PostgreSQL schema of the tables if none is given.
const DefaultSchema = "penstock"

// migrations are the files of the schema, in their order. The name of each begins with its version. Their
// statements name the schema penstock, which inSchema replaces.
//
//go:embed schema/*.sql
var migrations embed.FS

// A migration changes the schema from one version to the next.
type migration struct {
	version int // from 1
	name    string
	sql     string
}

// migrationsAfter returns the migrations with a higher version.
func migrationsAfter(version int, schema string) []migration {
	names, err := fs.Glob(migrations, "schema/*.sql") // sorted
	if err != nil {
		panic(err)
	}
	var after []migration
	for i, name := range names {
		if i < version {
			continue
		}
		sql, err := migrations.ReadFile(name)
		if err != nil {
			panic(err)
		}
		after = append(after, migration{i + 1, strings.TrimPrefix(name, "schema/"), inSchema(string(sql), schema)})
	}
	return after
}

// inSchema replaces the schema of statements.
func inSchema(sql, schema string) string {
	return strings.ReplaceAll(sql, "penstock.", pgx.Identifier{schema}.Sanitize()+".")
}

// recordVersion is the statement that records a migration.
const recordVersion = "INSERT INTO penstock.schema_version (version) VALUES (%d);\n"

// createSchema is what precedes the first migration.
const createSchema = `CREATE SCHEMA IF NOT EXISTS %s;
CREATE TABLE penstock.schema_version (version int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now());
`

// SchemaSQL returns the statements that change a schema from a version to the newest one, for a tool
// that applies migrations: from 0 they create it. "" is [DefaultSchema]. Each migration is a transaction.
func SchemaSQL(schema string, from int) string {
	schema = schemaOr(schema)
	var b strings.Builder
	for _, m := range migrationsAfter(from, schema) {
		fmt.Fprintf(&b, "-- %s\nBEGIN;\nSET LOCAL lock_timeout = '%s';\n", m.name, migrationLockTimeout)
		b.WriteString(m.statements(schema))
		b.WriteString("COMMIT;\n")
	}
	return b.String()
}

// statements returns what a migration executes in its transaction.
func (m *migration) statements(schema string) string {
	record := inSchema(fmt.Sprintf(recordVersion, m.version), schema)
	if m.version > 1 {
		return m.sql + record
	}
	return inSchema(fmt.Sprintf(createSchema, pgx.Identifier{schema}.Sanitize()), schema) + m.sql + record
}

// migrationLockTimeout is how long a migration waits for a lock, for which others then wait, too.
const migrationLockTimeout = "3s"

// Migrate creates the schema or changes it to the newest version, and does nothing if it has that. ""
// is [DefaultSchema]. It needs the privilege CREATE on the database to create the schema, and later
// the ownership of the tables. It is safe to call it on all nodes at once, and while nodes of the
// version before use the schema.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	schema = schemaOr(schema)
	for {
		isDone, err := migrateOnce(ctx, pool, schema)
		if err != nil {
			return fmt.Errorf("postgres: migrate the schema %q: %w", schema, err)
		}
		if isDone {
			return nil
		}
	}
}

// migrateOnce applies the next migration, if there is one.
func migrateOnce(ctx context.Context, pool *pgxpool.Pool, schema string) (isDone bool, err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	// Migrations at the same time wait for each other here, for as long as ctx permits.
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('penstock migration'), hashtext($1))", schema); err != nil {
		return false, err
	}
	version, err := schemaVersion(ctx, tx, schema)
	if err != nil {
		return false, err
	}
	next := migrationsAfter(version, schema)
	if len(next) == 0 {
		return true, nil
	}
	sql := "SET LOCAL lock_timeout = '" + migrationLockTimeout + "';\n" + next[0].statements(schema)
	if _, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		return false, fmt.Errorf("%s: %w", next[0].name, err)
	}
	return len(next) == 1, tx.Commit(ctx)
}

// schemaVersion returns the version of a schema, 0 if there is none.
func schemaVersion(ctx context.Context, tx pgx.Tx, schema string) (version int, err error) {
	table := pgx.Identifier{schema, "schema_version"}.Sanitize()
	var exists bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&exists); err != nil || !exists {
		return 0, err
	}
	if err := tx.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM "+table).Scan(&version); err != nil {
		return 0, err
	}
	if newest := len(migrationsAfter(0, schema)); version > newest {
		return 0, errors.Errorf(errors.FailedPrecondition, "the schema has version %d, and this program knows only %d; use a newer one", version, newest)
	}
	return version, nil
}

// schemaOr returns the default schema for "".
func schemaOr(schema string) string {
	if schema == "" {
		return DefaultSchema
	}
	return schema
}
