package guides_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every Go block of a guide about limits is the body of a function in a file of its own. It
// may use what is declared here.
const (
	header = `package snippets

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)
`
	declared = header + `
var (
	r       *router.Router
	ctx     context.Context
	limiter *memory.Limiter
	shared  ratelimit.Limiter
)

type User struct{ Plan string }

type message struct{}

func (message) MessageType() string { return "" }

type Render struct{ message }
type Image struct{ message }
type SlowDown struct {
	message
	RetryAfter time.Duration
}

func say(*router.Context, message) error                 { return nil }
func search(*router.Context, message) (message, error)   { return message{}, nil }
func render(*router.Context, Render) (Image, error)      { return Image{}, nil }
func find(Render) (Image, bool)                          { return Image{}, false }
`
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// TestBlocksCompile builds the blocks together. That a block does not use everything is no
// fault of it.
func TestBlocksCompile(t *testing.T) {
	//nolint:usetesting // it must be inside the module, so that its packages are found
	dir, err := os.MkdirTemp(".", "_snippets")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("declared.go", declared)
	found := 0
	for _, guide := range []string{"rate-limiting.md", "running-limits.md"} {
		text, err := os.ReadFile(guide)
		require.NoError(t, err)
		for _, at := range goBlock.FindAllSubmatchIndex(text, -1) {
			found++
			line := 1 + strings.Count(string(text[:at[2]]), "\n")
			write(fmt.Sprintf("block%d.go", found), fmt.Sprintf("%s\nfunc _() error {\n//line %s:%d\n%s\nreturn nil\n}\n",
				header, guide, line, text[at[2]:at[3]]))
		}
	}
	require.Greater(t, found, 15)
	out, _ := exec.Command("go", "build", "-gcflags=-e", "./"+dir).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "declared and not used") && !strings.Contains(line, "imported and not used") {
			assert.Fail(t, strings.TrimSpace(line))
		}
	}
}
