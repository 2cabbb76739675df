package kotlinclient_test

import (
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
	"github.com/penstock-go/penstock/internal/interop/kotlintest"
	"github.com/penstock-go/penstock/internal/testscale"
)

func TestKotlinClient_TestsPass(t *testing.T) {
	build := kotlintest.Find(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	command := build.Test(ctx)
	command.Env = append(os.Environ(), exampleserver.Start(t)...)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	reports, err := filepath.Glob(filepath.Join(build.Target, "surefire-reports", "*.txt"))
	require.NoError(t, err)
	assert.Len(t, reports, 4, "classes with tests: surefire has found all of them")
}

func TestSources_HaveTheStyleOfKtlint(t *testing.T) {
	testscale.FullOnly(t, "TestKotlinClient_TestsPass")
	build := kotlintest.Find(t)
	libraries := filepath.Join(t.TempDir(), "classpath.txt")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	resolve := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", "testdata/ktlint/pom.xml",
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath", "-Dmdep.outputFile="+libraries)
	out, err := resolve.CombinedOutput()
	require.NoError(t, err, "%s", out)
	classpath, err := os.ReadFile(libraries)
	require.NoError(t, err)
	command := exec.CommandContext(ctx, "java", "-cp", strings.TrimSpace(string(classpath)), "com.pinterest.ktlint.Main", "--relative", "--log-level=none", "src/**/*.kt")
	command.Dir = build.Client
	out, err = command.CombinedOutput()
	assert.NoError(t, err, "%s", out)
}

const (
	readmePath   = "../../../clients/kotlin/README.md"
	examplesPath = "../../../clients/kotlin/src/test/kotlin/penstock/client/Examples.kt"
	javaPath     = "../../../clients/kotlin/src/test/java/penstock/client/JavaProgram.java"
)

var (
	sample = regexp.MustCompile("(?s)```(?:kotlin|java)\n(.*?)```")
	marked = regexp.MustCompile(`(?s)// README: begin \w+\n(.*?)\n *// README: end`)
)

// TestReadme_HasTheExamplesThatRun compares the samples of the page with the programs that the tests run.
func TestReadme_HasTheExamplesThatRun(t *testing.T) {
	t.Parallel()
	var examples, samples []string
	for _, path := range []string{examplesPath, javaPath} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range marked.FindAllStringSubmatch(string(text), -1) {
			examples = append(examples, unindent(m[1]))
		}
	}
	page, err := os.ReadFile(readmePath)
	require.NoError(t, err)
	for _, m := range sample.FindAllStringSubmatch(string(page), -1) {
		samples = append(samples, unindent(m[1]))
	}
	assert.ElementsMatch(t, examples, samples)
}

// unindent removes the indentation of the first line from all lines.
func unindent(text string) string {
	indentation := text[:len(text)-len(strings.TrimLeft(text, " "))]
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, indentation)
	}
	return strings.Join(lines, "\n")
}
