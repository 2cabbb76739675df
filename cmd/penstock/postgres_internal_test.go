package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/adapters/postgres/schema"
)

func TestPostgres_PrintsSchema(t *testing.T) {
	execute := func(args ...string) (status int, stdout, stderr string) {
		var out, errs strings.Builder
		status = run(append([]string{"postgres"}, args...), strings.NewReader(""), &out, &errs)
		return status, out.String(), errs.String()
	}
	for _, args := range [][]string{{}, {"schemas"}, {"schema", "x"}, {"schema", "-from", "-1"}, {"schema", "-from", "1000"}, {"schema", "-unknown"}, {"schema", "-name", strings.Repeat("s", 64)}} {
		status, stdout, stderr := execute(args...)
		assert.Equal(t, exitUsage, status, args)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, "penstock:")
	}
	for _, args := range [][]string{{"schema", "-h"}, {"-h"}, {"--help"}, {"help"}} {
		status, stdout, stderr := execute(args...)
		assert.Equal(t, exitOK, status, args)
		assert.Contains(t, stdout, "-from", args)
		assert.Empty(t, stderr, args)
	}
	status, stdout, _ := execute("schema", "-name", "app")
	assert.Equal(t, exitOK, status)
	assert.Equal(t, schema.SQL("app", 0), stdout)
	assert.Contains(t, stdout, `CREATE TABLE "app".outbox`)
}
