package penstock_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
)

// Each Go block of a guide or a reference page becomes the body of a function in a file of its own, with the imports of
// header. It may use what declared declares.
const (
	header = `package snippets

import (
	"context"
	"crypto/subtle"
	"database/sql"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/penstock-go/penstock/adapters/aisdk"
	"github.com/penstock-go/penstock/adapters/durableobject"
	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/adapters/redis"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/client"
	"github.com/penstock-go/penstock/client/fallback"
	"github.com/penstock-go/penstock/client/runs"
	"github.com/penstock-go/penstock/clientip"
	"github.com/penstock-go/penstock/codec/cbor"
	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/contract/contracttest"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/inspect"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/limit/access"
	"github.com/penstock-go/penstock/limit/limitfile"
	"github.com/penstock-go/penstock/limit/limittest/serverclock"
	"github.com/penstock-go/penstock/middleware/httplimit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/middleware/recorder"
	"github.com/penstock-go/penstock/outbound"
	"github.com/penstock-go/penstock/outbound/redisbudget"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/observe"
	"github.com/penstock-go/penstock/router/routertest"
	"github.com/penstock-go/penstock/run"
)
`
	declared = header + `
var (
	r       *router.Router
	ctx     *router.Context
	limiter *memory.Limiter
	shared  limit.Limiter

	t           testing.TB
	redisClient *goredis.Client
	c           *client.Client
	cost        func(router.IngressContext) int64
	server      *http.Server
	mux         *http.ServeMux
	alarm       atomic.Bool
	db          *sql.DB

	requireAdmin, cached router.Middleware

	rows iter.Seq[message]

	model languageModel

	answers    *run.Runs[aisdk.Chunk]
	imports    *run.Runs[Progress]
	unfinished []string
)

type spanKey struct{}

type User struct{ Plan, Org, ID string }

func verify(token string) (*User, error) { return nil, nil }

func verifyPassword(ctx context.Context, name, password string) (*User, error) { return nil, nil }

type message struct{}

func (message) MessageType() string { return "" }

type Position struct{ Player string }
type Render struct{ message }
type Image struct{ message }
type LogIn struct {
	message
	Name, Password string
}
type LoggedIn struct{ message }
type SlowDown struct {
	message
	RetryAfterMs int64
}

type Said struct {
	message
	Text string
}
type Ask struct {
	message
	Question string
}
type Progress struct {
	message
	Done, Total int
}
type Answer struct{ Text string }

func (Answer) MessageType() string { return "" }

type languageModel interface {
	Complete(ctx context.Context, question string) (text string, tokens int64, err error)
}

func identify(*http.Request) (router.Identity, error)    { return router.Identity{}, nil }
func topicOf(id router.Identity, chat string) string     { return "" }
func show(topic, text string)                            {}
func say(*router.Context, message) error                 { return nil }
func search(*router.Context, message) (message, error)   { return message{}, nil }
func ban(*router.Context, message) error                 { return nil }
func render(*router.Context, Render) (Image, error)      { return Image{}, nil }
func find(Render) (Image, bool)                          { return Image{}, false }
func mayRead(context.Context, string, string) bool       { return true }
`
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// guideBlocks calls each with the file of every block: a function with the block as its body, or the
// block itself if it has declarations.
func guideBlocks(t *testing.T, each func(place, file string)) {
	guides, err := filepath.Glob("docs/guides/*.md")
	require.NoError(t, err)
	references, err := filepath.Glob("docs/reference/*.md")
	require.NoError(t, err)
	found := 0
	for _, guide := range slices.Concat(guides, references) {
		text, err := os.ReadFile(guide)
		require.NoError(t, err)
		for _, at := range goBlock.FindAllSubmatchIndex(text, -1) {
			block := string(text[at[2]:at[3]])
			if strings.HasPrefix(block, "package ") { // a program, which another test vets
				continue
			}
			found++
			before, after := "func _() error {", "return nil\n}\n"
			if strings.HasPrefix(block, "func ") || strings.HasPrefix(block, "type ") {
				before, after = "", ""
			}
			place := fmt.Sprintf("%s:%d", guide, 1+strings.Count(string(text[:at[2]]), "\n"))
			each(place, fmt.Sprintf("%s\n%s\n//line %s\n%s%s", header, before, place, block, after))
		}
	}
	require.Greater(t, found, 15)
}

// TestGuides_CodeBlocksCompile builds the blocks together. It ignores unused variables and imports.
func TestGuides_CodeBlocksCompile(t *testing.T) {
	testscale.FullOnly(t, "TestGuides_CodeBlocksUseWhatExists")
	//nolint:usetesting // must be inside the module to import its packages
	dir, err := os.MkdirTemp(".", "_snippets")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("declared.go", declared)
	blocks := 0
	guideBlocks(t, func(_, file string) {
		blocks++
		write(fmt.Sprintf("block%d.go", blocks), file)
	})
	build := exec.Command("go", "build", "-gcflags=-e", "./"+dir) //nolint:gosec // the folder is that above
	build.Env = append(os.Environ(), "GOWORK="+workspace(t))
	out, _ := build.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "and not used") {
			assert.Fail(t, strings.TrimSpace(line))
		}
	}
}

// workspace returns the path of a go.work file with the modules that blocks import.
func workspace(t *testing.T) string {
	text := "go 1.26.0\n"
	for _, folder := range modules {
		absolute, err := filepath.Abs(folder)
		require.NoError(t, err)
		text += fmt.Sprintf("use %q\n", absolute)
	}
	path := filepath.Join(t.TempDir(), "go.work")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// TestGuides_CodeBlocksUseWhatExists parses the blocks, and looks up the identifiers that they use of
// this module.
func TestGuides_CodeBlocksUseWhatExists(t *testing.T) {
	guideBlocks(t, func(place, file string) {
		problems, err := missingIdentifiers(file)
		assert.NoError(t, err, place)
		assert.Empty(t, problems, place)
	})
}
