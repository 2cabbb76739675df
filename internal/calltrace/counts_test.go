package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCountPath_CountsFilesAndReturns(t *testing.T) {
	entered := []string{"a/1.go", "a/1.go", "a/2.go", "b/3.go", "a/1.go", "b/3.go", "c/4.go"}
	assert.Equal(t, count{functions: 7, files: 4, fileReturns: 2, packages: 3, packageReturn: 2}, countPath(entered))
	assert.Zero(t, countPath(nil))
}

func TestEnterFunctions_KeepsLines(t *testing.T) {
	text, err := enterFunctions("a/b.go", []byte("package b\n\nvar f = func() {}\n\nfunc g() {\n\tf()\n}\n"))
	require.NoError(t, err)
	assert.Equal(t, "package b; import calltrace \"github.com/penstock-go/penstock/internal/calltrace/record\"\n\nvar f = func() {}\n\n"+
		"func g() { calltrace.Enter(\"a/b.go\"); \n\tf()\n}\n", string(text))
	unchanged := []byte("package b\n\nvar f = func() {}\n")
	text, err = enterFunctions("a/b.go", unchanged)
	require.NoError(t, err)
	assert.Equal(t, unchanged, text)
}
