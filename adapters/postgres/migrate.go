package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-go/penstock/adapters/postgres/schema"
)

// DefaultSchema is the PostgreSQL schema of the tables if none is given.
const DefaultSchema = schema.DefaultName

// inSchema replaces the schema of statements.
func inSchema(sql, name string) string { return schema.Qualify(sql, name) }

// mustBeSchema panics if the name of a schema is invalid.
func mustBeSchema(name string) {
	if err := schema.Check(name); err != nil {
		panic("postgres: " + err.Error())
	}
}

// schemaOr returns the default schema for "".
func schemaOr(name string) string {
	if name == "" {
		return DefaultSchema
	}
	return name
}

// Migrate creates the schema or changes it to the newest version, and does nothing if it has that or a
// newer one. "" is [DefaultSchema], and a name has at most 63 bytes. It needs the privilege CREATE on the database to create the
// schema, and later the ownership of the tables. It is safe to call it on all nodes at once, and
// while nodes of the version before use the schema. Package schema has the statements for other
// tools, and so does `penstock postgres schema`.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schemaName string) error {
	if err := schema.Check(schemaName); err != nil {
		return fmt.Errorf("postgres: migrate: %w", err)
	}
	schemaName = schemaOr(schemaName)
	for {
		isDone, err := migrateOnce(ctx, pool, schemaName)
		if err != nil {
			return fmt.Errorf("postgres: migrate the schema %q: %w", schemaName, err)
		}
		if isDone {
			return nil
		}
	}
}

// migrateOnce applies the next migration, if there is one.
func migrateOnce(ctx context.Context, pool *pgxpool.Pool, name string) (isDone bool, err error) {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	// Migrations at the same time wait for each other here, for as long as ctx permits.
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('penstock migration'), hashtext($1))", name); err != nil {
		return false, err
	}
	all := schema.Migrations(name)
	version, err := schemaVersion(ctx, tx, name)
	if err != nil || version >= len(all) { // after a rollback of the program, the schema is newer
		return true, err
	}
	next := all[version]
	if _, err := tx.Conn().PgConn().Exec(ctx, "SET LOCAL lock_timeout = '"+schema.LockTimeout+"';\n"+next.SQL).ReadAll(); err != nil {
		return false, fmt.Errorf("%s: %w", next.Name, err)
	}
	return next.Version == len(all), tx.Commit(ctx)
}

// schemaVersion returns the version of a schema, 0 if there is none.
func schemaVersion(ctx context.Context, tx pgx.Tx, name string) (version int, err error) {
	var exists bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", schema.Quote(name)+".schema_version").Scan(&exists); err != nil || !exists {
		return 0, err
	}
	err = tx.QueryRow(ctx, schema.Qualify("SELECT coalesce(max(version), 0) FROM penstock.schema_version", name)).Scan(&version)
	return version, err
}
