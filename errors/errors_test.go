package errors_test

import (
	"context"
	stderrors "errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
)

// exported returns the exported names of the standard package. It parses the source, as go/types would
// take longer to link than all tests of this package run.
func exported(t *testing.T) (names []string) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output() // the program does not know it if it is compiled with -trimpath
	require.NoError(t, err)
	standard := filepath.Join(strings.TrimSpace(string(root)), "src", "errors")
	files, err := build.ImportDir(standard, 0)
	require.NoError(t, err)
	add := func(identifiers ...*ast.Ident) {
		for _, identifier := range identifiers {
			if identifier.IsExported() {
				names = append(names, identifier.Name)
			}
		}
	}
	for _, name := range files.GoFiles {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(standard, name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil {
					add(n.Name)
				}
				return false
			case *ast.ValueSpec:
				add(n.Names...)
			case *ast.TypeSpec:
				add(n.Name)
			}
			return true
		})
	}
	require.Subset(t, names, []string{"Is", "ErrUnsupported"})
	return names
}

func TestPackage_ExportsAllNamesOfTheStandardPackage(t *testing.T) {
	ours := map[string][2]any{ // and that of the standard package
		"As":             {errors.As, stderrors.As},
		"AsType":         {errors.AsType[error], stderrors.AsType[error]}, // it allows all errors
		"ErrUnsupported": {&errors.ErrUnsupported, &stderrors.ErrUnsupported},
		"Is":             {errors.Is, stderrors.Is},
		"Join":           {errors.Join, stderrors.Join},
		"New":            {errors.New, stderrors.New},
		"Unwrap":         {errors.Unwrap, stderrors.Unwrap},
	}
	for _, name := range exported(t) {
		if pair, ok := ours[name]; assert.True(t, ok, "errors.%s is missing", name) {
			assert.Equal(t, reflect.TypeOf(pair[1]), reflect.TypeOf(pair[0]), "errors.%s", name)
		}
	}
}

func TestCodeOf_ReturnsFirstCodeInTree(t *testing.T) {
	notFound := errors.Errorf(errors.NotFound, "room %q does not exist", "go")
	for _, tt := range []struct {
		name string
		err  error
		want errors.Code
	}{
		{"nil", nil, ""},
		{"an error with a code", notFound, errors.NotFound},
		{"a wrapped error with a code", fmt.Errorf("join: %w", notFound), errors.NotFound},
		{"an error with a code and a cause", &errors.Error{Code: errors.Unavailable, Err: context.Canceled}, errors.Unavailable},
		{"a canceled context", fmt.Errorf("query: %w", context.Canceled), errors.Canceled},
		{"an expired context", context.DeadlineExceeded, errors.DeadlineExceeded},
		{"a joined error", errors.Join(io.EOF, notFound), errors.NotFound},
		{"anything else", io.EOF, errors.Internal},
		{"a nil *Error", (*errors.Error)(nil), errors.Internal},
		{"a wrapped nil *Error", fmt.Errorf("join: %w", (*errors.Error)(nil)), errors.Internal},
		{"a joined nil *Error", errors.Join(io.EOF, (*errors.Error)(nil)), errors.Internal},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, errors.CodeOf(tt.err))
		})
	}
}

func TestError_Retryable(t *testing.T) {
	for _, tt := range []struct {
		err  errors.Error
		want bool
	}{
		{errors.Error{Code: errors.ResourceExhausted}, true},
		{errors.Error{Code: errors.ResourceExhausted, RetryAfter: errors.Never}, false},
		{errors.Error{Code: errors.Unavailable, RetryAfter: time.Second}, true},
		{errors.Error{Code: errors.DeadlineExceeded}, true},
		{errors.Error{Code: errors.Aborted}, true},
		{errors.Error{Code: errors.InvalidArgument, RetryAfter: time.Second}, false},
		{errors.Error{Code: errors.FailedPrecondition}, false},
		{errors.Error{Code: errors.Canceled}, false},
		{errors.Error{Code: errors.OutcomeUnknown, RetryAfter: time.Second}, false},
		{errors.Error{Code: errors.Internal}, false},
		{errors.Error{Code: errors.Internal, RetryAfter: time.Second}, true},
		{errors.Error{Code: "ROOM_FULL"}, false},
		{errors.Error{Code: "ROOM_FULL", RetryAfter: time.Minute}, true},
	} {
		assert.Equal(t, tt.want, tt.err.Retryable(), "%+v", tt.err)
	}
}

func TestError_TextContainsCause(t *testing.T) {
	err := error(&errors.Error{Code: errors.Internal, Message: "history is lost", Err: io.ErrUnexpectedEOF})
	assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
	assert.Equal(t, "INTERNAL: history is lost: unexpected EOF", err.Error())
	assert.Equal(t, "NOT_FOUND", (&errors.Error{Code: errors.NotFound}).Error())
}

func TestError_NilPointerDoesNotPanic(t *testing.T) {
	var e *errors.Error
	assert.Equal(t, "<nil>", e.Error())
	assert.NoError(t, e.Unwrap())
	assert.False(t, e.Retryable())
	assert.NotErrorIs(t, fmt.Errorf("x: %w", e), io.EOF)
	assert.Equal(t, "INTERNAL: <nil>", (&errors.Error{Code: errors.Internal, Err: e}).Error())
}

func ExampleErrorf() {
	err := error(errors.Errorf(errors.NotFound, "room %q does not exist", "go"))
	fmt.Println(errors.CodeOf(err))
	fmt.Println(err)
	// Output:
	// NOT_FOUND
	// NOT_FOUND: room "go" does not exist
}

// A RoomFull has the details of ROOM_FULL.
type RoomFull struct {
	Capacity int `json:"capacity"`
}

func ExampleError() {
	err := fmt.Errorf("save: %w", &errors.Error{
		Code:       "ROOM_FULL", // a code of the application
		Message:    "the room is full",
		Details:    RoomFull{Capacity: 50},
		RetryAfter: time.Minute,
		Err:        io.ErrShortWrite, // private: never sent to the client
	})
	if e, ok := errors.AsType[*errors.Error](err); ok {
		fmt.Println(e.Code, e.Message, errors.DetailsOf[RoomFull](err).Capacity, e.Retryable())
	}
	// Output: ROOM_FULL the room is full 50 true
}
