package errors_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

// TestCodes_AreAllConstants reads the source, so that no list forgets a code.
func TestCodes_AreAllConstants(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "code.go", nil, 0)
	require.NoError(t, err)
	var want []errors.Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Code" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			want = append(want, errors.Code(text))
		}
		return true
	})
	assert.Equal(t, want, errors.Codes())
	for _, code := range want {
		assert.True(t, code.IsStandard())
	}
	assert.False(t, errors.Code("ROOM_FULL").IsStandard())
	errors.Codes()[0] = "changed"
	assert.Equal(t, want, errors.Codes())
}
