package pyclient_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/exampleserver"
	"github.com/penstock-go/penstock/internal/interop/pythontest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// unreachable matches what pip prints if it cannot reach its index.
var unreachable = regexp.MustCompile(`NewConnectionError|ConnectTimeoutError|ReadTimeoutError|NameResolutionError|ProxyError|ConnectionResetError`)

// command runs a program outside of the folder of the client. Without a connection to the index of pip, the test is skipped.
func command(t *testing.T, dir string, environment []string, program ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, program[0], program[1:]...)
	c.Dir, c.Env = dir, append(append(os.Environ(), "PYTHONPATH="), environment...)
	out, err := c.CombinedOutput()
	if err != nil && unreachable.Match(out) && os.Getenv("CI") != "true" {
		t.Skip("the index of pip cannot be reached")
	}
	require.NoError(t, err, "%s\n%s", strings.Join(program, " "), out)
	return string(out)
}

// The files of a release are the same each time, and install into an empty environment.
func TestPackage_WorksInAnEmptyEnvironment(t *testing.T) {
	testscale.FullOnly(t, "TestPythonClient_TestsPass")
	pythontest.Find(t)
	script, err := filepath.Abs("../../../.ci/python-package")
	require.NoError(t, err)
	source, err := filepath.Abs("../../../clients/python")
	require.NoError(t, err)
	first, second, work := t.TempDir(), t.TempDir(), t.TempDir()
	const epoch = "SOURCE_DATE_EPOCH=1764547200"
	command(t, work, []string{epoch}, script, source, first)
	command(t, work, []string{epoch, "TZ=Asia/Tokyo"}, script, source, second)
	files, err := filepath.Glob(filepath.Join(first, "penstock_client-*"))
	require.NoError(t, err)
	require.Len(t, files, 2, "a wheel and the sources")
	for _, file := range files {
		one, err := os.ReadFile(file)
		require.NoError(t, err)
		other, err := os.ReadFile(filepath.Join(second, filepath.Base(file)))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(one, other), "%s has other bytes when it is built again", filepath.Base(file))
	}

	environment := exampleserver.Start(t)
	const program = `import asyncio, os, penstock_client, penstock_client.runs, penstock_client.sync
assert "site-packages" in penstock_client.__file__, penstock_client.__file__
async def main():
    async with penstock_client.Client(os.environ["PENSTOCK_URL"]) as client:
        print(await client.call("ECHO", {"n": 7}))
    fallback = penstock_client.Fallback(os.environ["PENSTOCK_URL"].replace("ws", "http", 1) + "/http", mode="stream")
    async with penstock_client.Client(os.environ["PENSTOCK_URL"], fallback=fallback) as client:
        print(await client.call("ECHO", {"n": 8}))
asyncio.run(main())
`
	for _, file := range files {
		venv := filepath.Join(work, filepath.Ext(file))
		python := filepath.Join(venv, "bin", "python")
		command(t, work, nil, "python3", "-m", "venv", venv)
		command(t, work, nil, python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", file)
		assert.Equal(t, "{'n': 7}\n{'n': 8}\n", command(t, work, environment, python, "-W", "error", "-c", program), filepath.Base(file))
	}
}
