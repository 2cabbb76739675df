//go:build !unix

package postgrestest

import "testing"

// Shared skips the test: PostgreSQL is started on Unix only.
func Shared(t testing.TB) string {
	t.Helper()
	t.Skip("postgrestest: PostgreSQL is started on Unix only")
	return ""
}
