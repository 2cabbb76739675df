// Package postgrestest starts PostgreSQL servers and PgBouncer for tests: Debian's packages
// postgresql and pgbouncer, in folders and on ports of their own.
//
// Without the programs, the test is skipped, or fails if PENSTOCK_REQUIRE_POSTGRES=1 or CI=true.
// PostgreSQL refuses to run as root: in a test that runs as root, it runs as another user. A
// process ends with the test that started it, or with the test binary if that crashes. The package
// has no client of PostgreSQL, so that the module needs none.
package postgrestest
