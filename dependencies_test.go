package penstock_test

import (
	"fmt"
	"go/build"
	"maps"
	"os/exec"
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

// linkedModules returns the modules of linkedPackages.
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
	modules := append(others, module, "github.com/coder/websocket", "github.com/klauspost/compress")
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
	assert.Equal(t, routerModules(), linkedModules(t, "router/routertest"))
	assert.Equal(t, routerModules(), linkedModules(t, "inspect"))
	for _, own := range []string{"adapters/aisdk", "durablestreams"} {
		assert.Equal(t, routerModules(module+"/"+own), linkedModules(t, own))
	}
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
			assert.Contains(t, []string{"client", "client/fallback", "client/runs", "errors", "internal/closecodes", "internal/executor", "internal/jsonplan", "internal/jsontag", "internal/jsonv2", "internal/protocol", "internal/random", "internal/runmessages", "internal/sleep", "internal/wire", "internal/wsframe", "tracing"}, pkg)
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
		"clientip", "errors", "internal/enforce", "internal/httptoken", "internal/ipprefix", "internal/random", "internal/sleep", "limit", "limit/access", "limit/adapter", "limit/mode", "limit/observe", "middleware/httplimit",
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
