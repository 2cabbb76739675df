package internal_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/jsonv2"
)

// TestFiles_DifferOnlyInImports proves that every version of Go has the same names.
func TestFiles_DifferOnlyInImports(t *testing.T) {
	imports := regexp.MustCompile(`(?m)^import \((.|\n)*?^\)\n`)
	body := func(path string) string {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		constraint, rest, found := strings.Cut(string(text), "\n")
		require.True(t, found)
		require.Contains(t, constraint, "//go:build ")
		return imports.ReplaceAllString(rest, "")
	}
	assert.Equal(t, body("jsonv2/std.go"), body("jsonv2/module.go"))
}

func TestMarshal_SortsMapsAndReplacesInvalidUTF8(t *testing.T) {
	options := jsonv2.JoinOptions(jsonv2.AllowInvalidUTF8(true), jsonv2.Deterministic(true))
	value := map[string]string{"c": "", "b": "\xff", "a": "é"}
	for range 20 { // the order of a map is random
		text, err := jsonv2.Marshal(value, options)
		require.NoError(t, err)
		require.Equal(t, "{\"a\":\"é\",\"b\":\"\ufffd\",\"c\":\"\"}", string(text))
	}
	_, err := jsonv2.Marshal(value)
	assert.Error(t, err, "without the option")
}

func TestUnmarshal_ReportsFieldAndReason(t *testing.T) {
	var m struct {
		User struct {
			Age int `json:"age"`
		} `json:"user"`
	}
	var semantic *jsonv2.SemanticError
	require.ErrorAs(t, jsonv2.Unmarshal([]byte(`{"user":{"age":"x"}}`), &m), &semantic)
	assert.Equal(t, jsonv2.Pointer("/user/age"), semantic.JSONPointer)
	assert.Equal(t, jsonv2.KindString, semantic.JSONKind)

	var syntactic *jsonv2.SyntacticError
	err := jsonv2.Unmarshal([]byte(`{"user":{"age":1,"age":2}}`), &m)
	require.ErrorAs(t, err, &syntactic)
	require.ErrorIs(t, err, jsonv2.ErrDuplicateName)
	assert.Equal(t, jsonv2.Pointer("/user/age"), syntactic.JSONPointer)
}
