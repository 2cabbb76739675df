package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestHelp_OfACommandIsThatOfItsFlagH(t *testing.T) {
	for _, name := range []string{"simulate", "load", "limits", "types", "asyncapi", "schema", "postgres", "conformance"} {
		_, want, _ := command("", name, "-h")
		status, stdout, stderr := command("", "help", name)
		assert.Equal(t, exitOK, status, name)
		assert.Equal(t, want, stdout)
		assert.Contains(t, stdout, "penstock "+name)
		assert.Empty(t, stderr)
	}
	status, _, stderr := command("", "help", "nothing")
	assert.Equal(t, exitUsage, status)
	assert.Contains(t, stderr, `unknown command "nothing"`)
}

func TestVersion(t *testing.T) {
	status, stdout, stderr := command("", "version")
	assert.Equal(t, exitOK, status)
	assert.Regexp(t, `^penstock .*go1\.\d+`, stdout)
	assert.Empty(t, stderr)
}
