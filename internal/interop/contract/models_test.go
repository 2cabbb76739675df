package contract_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAsyncAPI_OfficialGeneratorMakesOurTypes generates Java, Kotlin and Python. Every type must have our name: the
// generator calls a schema without a title AnonymousSchema_1. What it has generated must compile, as far as the compilers are
// installed.
func TestAsyncAPI_OfficialGeneratorMakesOurTypes(t *testing.T) {
	t.Parallel()
	dir, out := install(t), t.TempDir()
	args := []string{filepath.Join(dir, "models.mjs"), out}
	for _, path := range []string{kitchen + ".asyncapi.json", chat + ".asyncapi.json"} {
		absolute, err := filepath.Abs(path)
		require.NoError(t, err)
		args = append(args, absolute)
	}
	printed, err := run(t, args...)
	require.NoError(t, err, "%s", printed)
	generated := map[string][]string{} // names by language and document
	for line := range strings.Lines(printed) {
		words := strings.Fields(line)
		generated[words[0]+" "+words[1]] = words[2:]
	}
	require.Len(t, generated, 6, "%s", printed)
	for of, names := range generated {
		assert.NotContains(t, strings.Join(names, " "), "AnonymousSchema", of)
		want := []string{"Meta", "CallMeta", "ErrorPayload", "ErrorMessage", "RpcErrorReply"}
		if strings.HasSuffix(of, " contract") {
			want = append(want, "JoinRoom", "JoinRoomCall", "RoomJoined", "RoomJoinedReply", "SaidMessage", "LeaveRoomEvent")
		} else {
			want = append(want, "Everything", "EverythingEvent", "AskProgress", "Color", "Circle", "PageOfStringList")
		}
		for _, name := range want {
			assert.True(t, slices.Contains(names, name), "%s has no %s: %v", of, name, names)
		}
	}
	for _, document := range []string{"kitchen", "contract"} {
		compileModels(t, out, "javac", "java", document, "-d", filepath.Join(out, "classes"))
		compileModels(t, out, "kotlinc", "kt", document, "-d", filepath.Join(out, "kotlin-"+document))
		compileModels(t, out, "python3", "py", document, "-m", "py_compile")
	}
}

// compileModels runs a compiler with the generated files of a document.
func compileModels(t *testing.T, out, compiler, language, document string, args ...string) {
	t.Helper()
	program, err := exec.LookPath(compiler)
	if err != nil {
		t.Logf("%s is not installed; its files are generated and not compiled", compiler)
		return
	}
	files, err := filepath.Glob(filepath.Join(out, language, document, "*."+language))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	printed, err := exec.CommandContext(ctx, program, append(args, files...)...).CombinedOutput()
	assert.NoError(t, err, "%s: %s", compiler, printed)
}

// TestAsyncAPI_OpenEnumerationsAcceptLaterValues because a generated closed one fails for a value that the server adds.
func TestAsyncAPI_OpenEnumerationsAcceptLaterValues(t *testing.T) {
	for _, path := range []string{kitchen + ".asyncapi.json", kitchen + ".schema.json", chat + ".asyncapi.json"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var document any
		require.NoError(t, json.Unmarshal(text, &document))
		var visit func(at string, v any)
		visit = func(at string, v any) {
			switch v := v.(type) {
			case map[string]any:
				if v["x-penstock-open"] == true {
					assert.NotContains(t, v, "enum", at)
					assert.Contains(t, v, "examples", at)
				}
				for name, member := range v {
					visit(at+"/"+name, member)
				}
			case []any:
				for _, element := range v {
					visit(at, element)
				}
			}
		}
		visit(path, document)
	}
}
