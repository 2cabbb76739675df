package pyclient_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/exampleserver"
	"github.com/penstock-go/penstock/internal/interop/pythontest"
)

// runPython runs a module of Python in the directory of the client.
func runPython(t *testing.T, environment []string, arguments ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	command := pythontest.Find(t).Command(ctx, append([]string{"-m"}, arguments...)...)
	command.Env = append(append(command.Env, "RUFF_NO_CACHE=true"), environment...)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "python -m %s\n%s", strings.Join(arguments, " "), out)
}

func TestPythonClient_TestsPass(t *testing.T) {
	pythontest.Find(t)
	runPython(t, exampleserver.Start(t), "pytest", "-q", "-p", "no:cacheprovider", "tests")
}

// The module that package contract generates types the client.
func TestGeneratedModule_TypesTheClient(t *testing.T) {
	rules, err := filepath.Abs("testdata/rules.py")
	require.NoError(t, err)
	generated, err := filepath.Abs("../../../contract/testdata")
	require.NoError(t, err)
	command := pythontest.Find(t).Command(t.Context(), "-m", "mypy", "--cache-dir", t.TempDir(), "--strict", rules)
	command.Env = append(command.Env, "MYPYPATH=src"+string(os.PathListSeparator)+generated)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	command = pythontest.Find(t).Command(t.Context(), filepath.Join(generated, "kitchen.py"))
	out, err = command.CombinedOutput()
	require.NoError(t, err, "the module can be imported: %s", out)
}

func TestPythonClient_TypesAndStyle(t *testing.T) {
	runPython(t, nil, "mypy", "--cache-dir", t.TempDir())
	runPython(t, nil, "ruff", "check", ".")
	runPython(t, nil, "ruff", "format", "--check", ".")
}
