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
	kotlin := kotlinCompiler(t)
	for _, document := range []string{"kitchen", "contract"} {
		compileModels(t, out, "javac", "java", document, "-d", filepath.Join(out, "classes"))
		compileModels(t, out, "python3", "py", document, "-m", "py_compile")
		if kotlin != nil {
			compileModels(t, out, "java", "kt", document, append(kotlin, "-d", filepath.Join(out, "kotlin-"+document))...)
		}
	}
}

// kotlinCompiler returns the arguments with which java runs the compiler of Kotlin, which Maven downloads: those of
// distributions are too old. It returns nil if Maven or Java is not installed, or the download fails.
func kotlinCompiler(t *testing.T) []string {
	t.Helper()
	for _, program := range []string{"mvn", "java"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("%s is not installed; the files in Kotlin are generated and not compiled", program)
			return nil
		}
	}
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	printed, err := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", filepath.Join("testdata", "kotlin", "pom.xml"), "dependency:copy-dependencies", "-DoutputDirectory="+dir).CombinedOutput()
	if err != nil {
		t.Logf("the compiler of Kotlin cannot be downloaded, so that files are generated and not compiled: %v: %s", err, printed)
		return nil
	}
	libraries, err := filepath.Glob(filepath.Join(dir, "kotlin-stdlib-[0-9]*.jar"))
	require.NoError(t, err)
	require.Len(t, libraries, 1)
	return []string{"-cp", filepath.Join(dir, "*"), "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-no-stdlib", "-no-reflect", "-cp", libraries[0]}
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
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
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
