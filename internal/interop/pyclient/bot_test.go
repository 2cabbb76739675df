package pyclient_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/bottest"
	"github.com/penstock-go/penstock/internal/interop/exampletest"
	"github.com/penstock-go/penstock/internal/interop/pythontest"
)

var chat = exampletest.Example{Name: "chat"}

func TestMain(m *testing.M) { chat.Main(m) }

func TestBot_AnswersAndReturns(t *testing.T) {
	dir, err := filepath.Abs("../../../examples/bot-python")
	require.NoError(t, err)
	python := pythontest.Find(t)
	bottest.AnswersAndReturns(t, &chat, func(room, url string) *exec.Cmd {
		return python.Command(t.Context(), filepath.Join(dir, "bot.py"), room, url)
	})
}

func TestBot_TypesAndStyle(t *testing.T) {
	dir, err := filepath.Abs("../../../examples/bot-python")
	require.NoError(t, err)
	runPython(t, []string{"MYPYPATH=src"}, "mypy", "--strict", "--cache-dir", t.TempDir(), filepath.Join(dir, "bot.py"))
	runPython(t, nil, "ruff", "check", "--config", `src = ["../../examples/bot-python"]`, filepath.Join(dir, "bot.py"))
	runPython(t, nil, "ruff", "format", "--check", filepath.Join(dir, "bot.py"))
}
