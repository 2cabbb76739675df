package tsclient_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/testscale"
)

func TestTypeScriptClient_TypeChecks(t *testing.T) { run(t, nil, "npm", "run", "check") }

func TestTypeScriptClient_BehavesWithScriptedSocket(t *testing.T) { run(t, nil, "npm", "test") }

// serverTests are the test files that need a server, one for each entry of the package that has tests of its own.
var serverTests = []string{"server", "react", "run-server", "tanstack-db"}

// TestTypeScriptClient_PackageWorks builds the package, whose size is limited, and runs the tests
// with what npm packs.
func TestTypeScriptClient_PackageWorks(t *testing.T) {
	testscale.FullOnly(t, "TestTypeScriptClient_WorksWithServer")
	out := run(t, nil, "npm", "pack", "--json")
	assert.Contains(t, out, "dist/index.js")
	assert.Contains(t, out, "dist/index.d.ts")
	run(t, []string{"PENSTOCK_PACKAGE=1"}, "npm", "test")
	for _, name := range serverTests {
		run(t, []string{"PENSTOCK_PACKAGE=1", "PENSTOCK_URL=" + startServer(t)}, "npm", "test", "--", name)
	}
	run(t, []string{"PENSTOCK_PACKAGE=1", "PENSTOCK_URL=" + startTracedServer(t)}, "npm", "test", "--", "otel-server")
	run(t, []string{"PENSTOCK_PACKAGE=1", "PENSTOCK_CBOR=1", "PENSTOCK_URL=" + startServer(t)}, "npm", "test", "--", "server")
}

func TestTypeScriptClient_WorksWithServer(t *testing.T) {
	for _, name := range serverTests {
		t.Run(name, func(t *testing.T) { run(t, []string{"PENSTOCK_URL=" + startServer(t)}, "npm", "test", "--", name) })
	}
	t.Run("CBOR", func(t *testing.T) {
		run(t, []string{"PENSTOCK_CBOR=1", "PENSTOCK_URL=" + startServer(t)}, "npm", "test", "--", "server", "cbor", "run-server")
	})
}

// TestTypeScriptClient_WorksOverHTTP runs the tests of connections over HTTP, in both modes.
func TestTypeScriptClient_WorksOverHTTP(t *testing.T) {
	testscale.FullOnly(t, "TestTypeScriptClient_BehavesWithScriptedSocket")
	for _, mode := range []string{"stream", "poll"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			run(t, []string{"PENSTOCK_HTTP=" + mode, "PENSTOCK_URL=" + startServer(t)}, "npm", "test", "--", "server")
		})
	}
}

// TestTypeScriptClient_ReturnsToWebSocket takes some seconds, as long as a client needs to find out that WebSockets last.
func TestTypeScriptClient_ReturnsToWebSocket(t *testing.T) {
	testscale.FullOnly(t, "TestTypeScriptClient_BehavesWithScriptedSocket")
	t.Parallel()
	run(t, []string{"PENSTOCK_URL=" + startServer(t)}, "npm", "test", "--", "fallback-server")
}
