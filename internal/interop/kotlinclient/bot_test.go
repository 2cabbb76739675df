package kotlinclient_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/bottest"
	"github.com/penstock-go/penstock/internal/interop/exampletest"
	"github.com/penstock-go/penstock/internal/interop/kotlintest"
)

var chat = exampletest.Example{Name: "chat"}

func TestMain(m *testing.M) { chat.Main(m) }

func TestBot_AnswersAndReturns(t *testing.T) {
	compiler, classes := kotlintest.Find(t).Compiler(t), t.TempDir()
	out, err := compiler.Compile(t.Context(), classes, "../../../examples/bot-kotlin/src/main/kotlin")
	require.NoError(t, err, "%s", out)
	bottest.AnswersAndReturns(t, &chat, func(room, url string) *exec.Cmd {
		return compiler.Program(t.Context(), classes, "bot.BotKt", room, url)
	})
}
