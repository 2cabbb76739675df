package contracttest_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/contract"
	"github.com/penstock-go/penstock/contract/contracttest"
	"github.com/penstock-go/penstock/router"
)

type Say struct {
	Room string `json:"room"`
	Text string `json:"text"`
}

func (Say) MessageType() string { return "SAY" }

func newRouter() *router.Router {
	r := router.New(nil)
	router.On(r, func(*router.Context, Say) error { return nil })
	return r
}

// A recorder is a testing.TB whose failures do not fail this test.
type recorder struct {
	testing.TB

	failures []string
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatal(args ...any) {
	r.failures = append(r.failures, fmt.Sprint(args...))
	runtime.Goexit()
}

// check returns what Check reports.
func check(r *router.Router, path string) string {
	t := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		contracttest.Check(t, r, path, nil)
	}()
	<-done
	return strings.Join(t.failures, "\n")
}

func updating(t *testing.T, value string) {
	t.Helper()
	require.NoError(t, flag.Set("contract.update", value))
}

func TestCheck_FailsUntilTheFileIsUpdated(t *testing.T) {
	dir := t.TempDir()
	defer updating(t, "false")
	for _, name := range []string{"web/contract.ts", "asyncapi.json", "chat.schema.json", "contract.json", "contract.hash"} {
		path := filepath.Join(dir, name)
		assert.Contains(t, check(newRouter(), path), "differs from the router's contract; run the test with -contract.update")
		updating(t, "true")
		assert.Empty(t, check(newRouter(), path))
		updating(t, "false")
		assert.Empty(t, check(newRouter(), path))
	}
}

// TestCheck_ReportsDrift shows what happens if the router changes and the file does not.
func TestCheck_ReportsDrift(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contract.ts")
	updating(t, "true")
	defer updating(t, "false")
	require.Empty(t, check(newRouter(), path))
	updating(t, "false")
	changed := newRouter()
	router.RPC(changed, func(*router.Context, ask) (Say, error) { return Say{}, nil })
	failure := check(changed, path)
	assert.Contains(t, failure, path+" differs")
	assert.Regexp(t, `- \d+:   calls: \{\};\n`, failure)
	assert.Regexp(t, `\+ \d+:     ASK: \{ request: Ask; reply: Say; progress: never \};\n`, failure)
	assert.NotContains(t, failure, "SAY: Say;", "equal lines are not reported")
}

type ask struct{ Question string }

func (ask) MessageType() string { return "ASK" }

// TestCheck_SaysWhetherClientsOfTheEarlierVersionWork changes a committed contract.
func TestCheck_SaysWhetherClientsOfTheEarlierVersionWork(t *testing.T) {
	c, err := contract.New(newRouter().Describe(), nil)
	require.NoError(t, err)
	for name, tt := range map[string]struct{ old, replaced, want string }{
		"breaking":    {`"string"`, `"integer"`, "breaking for clients of the earlier version:\n  SAY.room: clients send integer, and the server accepts string\n  SAY.text"},
		"required":    {`"room",`, ``, "breaking for clients of the earlier version:\n  SAY.room: the server requires it, and clients need not send it\n"},
		"new message": {`"SAY"`, `"SAID"`, "compatible with clients of the earlier version:\n  SAY: new\n"},
		"no message":  {`"penstock": 1`, `"penstock": 1, "title": "Chat"`, "no message has changed\n"},
	} {
		path := filepath.Join(t.TempDir(), "contract.json")
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(c.Document()), tt.old, tt.replaced)), 0o600))
		assert.Contains(t, check(newRouter(), path), tt.want, name)
	}
}

func TestCheck_IgnoresCarriageReturns(t *testing.T) {
	c, err := contract.New(newRouter().Describe(), nil)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "contract.ts")
	require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(c.TypeScript()), "\n", "\r\n")), 0o600))
	assert.Empty(t, check(newRouter(), path))
}

func TestCheck_PackageInKotlinIsThePath(t *testing.T) {
	c, err := contract.New(newRouter().Describe(), nil)
	require.NoError(t, err)
	for dir, pkg := range map[string]string{"app/src/main/kotlin/com/example": "com.example", "java/chat": "chat", "src/kotlin": "", "src": ""} {
		path := filepath.Join(t.TempDir(), dir, "Contract.kt")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, c.Kotlin(pkg), 0o600))
		assert.Empty(t, check(newRouter(), path), dir)
	}
}

func TestCheck_BoundsTheDiff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "contract.ts")
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x\n", 500)), 0o600))
	failure := check(newRouter(), path)
	assert.Less(t, strings.Count(failure, "\n"), 70)
	assert.Contains(t, failure, "more lines")
}

func TestCheck_ReportsOtherMistakes(t *testing.T) {
	broken := router.New(nil)
	router.DeclareCall[Say, Say](broken)
	assert.Contains(t, check(broken, "contract.go"), "contracttest: the name of contract.go must end with .ts, .py, .kt, asyncapi.json, schema.json, contract.json or contract.hash")
	assert.Contains(t, check(broken, filepath.Join(t.TempDir(), "a", "..", "contract.ts\x00.ts")), "invalid argument")
	broken = router.New(nil)
	router.DeclareMessage[unclear](broken)
	assert.Contains(t, check(broken, "contract.ts"), "is an interface without variants")
}

type unclear struct{ E error }

func (unclear) MessageType() string { return "UNCLEAR" }
