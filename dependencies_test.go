package penstock_test

import (
	"fmt"
	"go/build"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/penstock-go/penstock"

// A listedPackage is what `go list` says about a package.
type listedPackage struct {
	module  string // "" for the standard library
	imports []string
}

// modules are the folders of the modules whose packages are on the floors of docs/architecture.md.
var modules = []string{".", "adapters/aisdk", "adapters/durableobject", "durablestreams", "examples/aichat", "outbound"}

// listPackages lists the packages of the modules and all that they import, without building them.
var listPackages = sync.OnceValues(func() (map[string]listedPackage, error) {
	packages := map[string]listedPackage{}
	for _, folder := range modules {
		out, err := exec.Command("go", "list", "-C", folder, "-deps", "-f", `{{.ImportPath}} {{with .Module}}{{.Path}}{{else}}-{{end}} {{join .Imports " "}}`, "./...").Output() //nolint:gosec // the folders above
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		for line := range strings.Lines(string(out)) {
			fields := strings.Fields(line)
			packages[fields[0]] = listedPackage{strings.TrimPrefix(fields[1], "-"), fields[2:]}
		}
	}
	return packages, nil
})

// isOurs reports whether a package is one of the modules.
func (p listedPackage) isOurs() bool {
	return p.module == module || strings.HasPrefix(p.module, module+"/")
}

// linkedPackages returns the packages that a program links when it imports packages of the modules.
func linkedPackages(t *testing.T, imported ...string) []string {
	t.Helper()
	packages, err := listPackages()
	require.NoError(t, err)
	linked := map[string]bool{}
	var visit func(path string)
	visit = func(path string) {
		if !linked[path] {
			linked[path] = true
			for _, imported := range packages[path].imports {
				visit(imported)
			}
		}
	}
	for _, pkg := range imported {
		require.Contains(t, packages, module+"/"+pkg)
		visit(module + "/" + pkg)
	}
	return slices.Sorted(maps.Keys(linked))
}

func linkedModules(t *testing.T, imported ...string) []string {
	t.Helper()
	modules := map[string]bool{}
	for _, path := range linkedPackages(t, imported...) {
		packages, _ := listPackages()
		modules[packages[path].module] = true
	}
	delete(modules, "")
	return slices.Sorted(maps.Keys(modules))
}

// routerModules returns the modules that a program links when it imports the router, and others. The
// list is documented, so extending it needs a decision.
func routerModules(others ...string) []string {
	modules := append(others, module, "github.com/klauspost/compress")
	return slices.Sorted(slices.Values(append(modules, jsonModules()...)))
}

// jsonModules returns the module of the JSON library, unless the standard library has it.
func jsonModules() []string {
	if slices.Contains(build.Default.ReleaseTags, "go1.27") && slices.Contains(build.Default.ToolTags, "goexperiment.jsonv2") {
		return nil
	}
	return []string{"github.com/go-json-experiment/json"}
}

func TestRouter_LinksOnlyListedModules(t *testing.T) {
	assert.Equal(t, routerModules(), linkedModules(t, "router"))
	assert.Equal(t, routerModules(), linkedModules(t, "inspect"))
	assert.Equal(t, routerModules(module+"/durablestreams"), linkedModules(t, "durablestreams"))
	const library = "github.com/coder/websocket" // which reads and writes on connections that are not of the router
	assert.Equal(t, routerModules(library), linkedModules(t, "router/routertest"))
	assert.Equal(t, routerModules(library, module+"/adapters/aisdk"), linkedModules(t, "adapters/aisdk"))
}

// TestReadme_ProgramLinksOnlyListedModules holds what the first program of a user links.
func TestReadme_ProgramLinksOnlyListedModules(t *testing.T) {
	var imported []string
	for _, match := range regexp.MustCompile(`"`+module+`/([^"]+)"`).FindAllStringSubmatch(programs(t, "README.md")["main0"][0], -1) {
		imported = append(imported, match[1])
	}
	assert.Contains(t, imported, "adapters/memory")
	assert.Equal(t, routerModules(), linkedModules(t, imported...))
	linked := linkedPackages(t, imported...)
	for _, pkg := range []string{"adapters/redis", "client", "client/fallback", "codec/cbor", "inspect", "run", "outbound"} {
		assert.NotContains(t, linked, module+"/"+pkg)
	}
}

// usesAll is a program with all that TestReadme_ProgramLinksOnlyWhatItUses wants absent.
const usesAll = `package main

import (
	"net/http"
	"time"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/broker"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

type say struct{}

func (say) MessageType() string { return "SAY" }

func main() {
	history := router.History{Messages: 1}
	r := router.New(&router.Options{Resume: router.ResumeOptions{Within: time.Minute}, UserHistory: history})
	router.Topic(r, "{name}", &router.TopicOptions{History: history})
	r.UseIngress(ratelimit.NewAll([]ratelimit.Rule{{Limiter: memory.NewLimiter(limit.PerSecond(1))}}, nil))
	router.On(r, func(ctx *router.Context, m say) error {
		return ctx.Subscribe("lobby", router.Since(broker.Position{}, nil))
	})
	_ = http.ListenAndServe("", r)
}
`

// linkedSymbols returns the names of what the linker keeps of a program.
func linkedSymbols(t *testing.T, name string, program []string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), name)
	out, err := exec.Command("go", "build", "-o", binary, writeProgram(t, ".", name, program)).CombinedOutput() //nolint:gosec // a program above, or of README.md
	require.NoError(t, err, "%s", out)
	symbols, err := exec.Command("go", "tool", "nm", binary).Output() //nolint:gosec // the file above
	require.NoError(t, err)
	return string(symbols)
}

// TestReadme_ProgramLinksOnlyWhatItUses names an entry of each part of the library that the linker drops, because only an
// option that the program does not name reaches it; see docs/decisions/0102-what-a-program-does-not-use-it-does-not-link.md.
func TestReadme_ProgramLinksOnlyWhatItUses(t *testing.T) {
	readme := linkedSymbols(t, "readme", programs(t, "README.md")["main0"])
	all := linkedSymbols(t, "all", []string{usesAll})
	for _, symbol := range []string{
		"router.(*Router).handleResume", "internal/member.(*Node).Resume", "internal/member.(*Node).OpenSession", "internal/session.(*Claim).", // Options.Resume
		"internal/access.(*Node).Follow",                                                                                        // Options.UserHistory
		"internal/member.(*Node).SubscribeClient", "internal/topic.(*Topics).sendPresence", "router.(*Router).publishOnHistory", // router.Topic
		"internal/topic.(*Topics).startSequencer", "internal/topic.(*Topics).followFromNow", // TopicOptions.History
		"internal/member.(*Node).JoinHistory", "internal/topic.(*Joining).", "internal/topic.(*StateSender).", "internal/sequencer.(*Catchup).", // router.Since
		"internal/memstore.(*Store).", "internal/memstore.(*Hub).", // any of these
		"limit.takeJointly", "adapters/memory.(*Limiter).TakeBatch", // ratelimit.NewAll
		"router.(*Conn).actForSession", "internal/member.(*Node).EndAccess",
	} {
		assert.False(t, strings.Contains(readme, module+"/"+symbol), "the program of README.md links %s", symbol)
		assert.True(t, strings.Contains(all, module+"/"+symbol), "%s has another name now", symbol)
	}
}

// TestOutbound_RedisIsLinkedByItsBudgetAlone keeps programs with budgets in memory small.
func TestOutbound_RedisIsLinkedByItsBudgetAlone(t *testing.T) {
	assert.Equal(t, []string{"github.com/dunglas/httpsfv", module, module + "/outbound"}, linkedModules(t, "outbound"))
	assert.Contains(t, linkedModules(t, "outbound/redisbudget"), "github.com/redis/go-redis/v9")
	for _, adapter := range []string{"adapters/memory", "adapters/redis", "adapters/durableobject"} {
		assert.NotContains(t, linkedPackages(t, adapter), module+"/outbound")
	}
}

// TestClient_LinksNeitherRouterNorBroker keeps programs with a client small.
func TestClient_LinksNeitherRouterNorBroker(t *testing.T) {
	for _, path := range linkedPackages(t, "client", "client/runs", "client/fallback") {
		if pkg, ok := strings.CutPrefix(path, module+"/"); ok {
			assert.Contains(t, []string{"client", "client/fallback", "client/runs", "errors", "internal/executor", "internal/jsonplan", "internal/jsonv2", "internal/protocol", "internal/random", "internal/rules", "internal/runmessages", "internal/wire", "internal/wsframe", "tracing"}, pkg)
		}
	}
}

// TestCodecs_LinkTheirFormatAlone keeps the library of a format out of programs that do not use it.
func TestCodecs_LinkTheirFormatAlone(t *testing.T) {
	assert.Equal(t, routerModules("github.com/fxamacker/cbor/v2", "github.com/x448/float16"), linkedModules(t, "codec/cbor"))
	assert.Equal(t, routerModules("google.golang.org/protobuf"), linkedModules(t, "codec/protobuf"))
}

// TestContract_AloneLinksJSONSchema keeps the library of JSON Schema out of programs that do not generate
// a contract.
func TestContract_AloneLinksJSONSchema(t *testing.T) {
	const library = "github.com/google/jsonschema-go"
	assert.Equal(t, routerModules(library), linkedModules(t, "contract"))
	packages, err := listPackages()
	require.NoError(t, err)
	for path, pkg := range packages {
		if pkg.isOurs() && path != module+"/contract" {
			for _, imported := range pkg.imports {
				assert.NotEqual(t, library, packages[imported].module, path)
			}
		}
	}
}

// TestHTTPLimit_LinksNoOtherModule keeps programs without WebSockets small.
func TestHTTPLimit_LinksNoOtherModule(t *testing.T) {
	assert.Equal(t, []string{module}, linkedModules(t, "middleware/httplimit"))
	var linked []string
	for _, path := range linkedPackages(t, "middleware/httplimit") {
		if pkg, ok := strings.CutPrefix(path, module+"/"); ok {
			linked = append(linked, pkg)
		}
	}
	assert.Equal(t, []string{
		"clientip", "errors", "internal/enforce", "internal/random", "internal/rules", "limit", "limit/access", "limit/adapter", "limit/mode", "limit/observe", "middleware/httplimit",
	}, linked)
}

// TestContracts_LinkNeitherRouterNorWebSocket keeps limiters and brokers useful without
// WebSockets.
func TestContracts_LinkNeitherRouterNorWebSocket(t *testing.T) {
	for _, pkg := range []string{"limit", "limit/access", "limit/limitfile", "limit/limittest", "limit/observe", "broker", "broker/brokertest", "clientip", "adapters/durableobject", "adapters/memory", "adapters/redis", "outbound", "outbound/redisbudget", "internal/appendqueue", "internal/batch", "internal/enforce", "internal/keyname", "internal/lease", "internal/cluster"} {
		for _, path := range linkedPackages(t, pkg) {
			for _, forbidden := range []string{"github.com/coder/websocket", module + "/router", module + "/internal/wsconn", module + "/middleware"} {
				assert.False(t, strings.HasPrefix(path, forbidden), "%s links %s", pkg, path)
			}
		}
	}
	assert.Equal(t, []string{module}, linkedModules(t, "limit"), "limit links no other module")
}
