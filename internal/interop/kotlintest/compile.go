package kotlintest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	kotlinVersion = regexp.MustCompile(`<kotlin\.version>(.*?)</kotlin\.version>`)
	plugin        = regexp.MustCompile(`[^:;]*kotlin-serialization-compiler-plugin[^:;]*\.jar`)
)

// A Compiler compiles programs that use the client.
type Compiler struct {
	build     *Build
	classpath string // of the compiler
}

// Compiler returns the compiler with which the client is built.
func (b *Build) Compiler(t testing.TB) *Compiler {
	t.Helper()
	pom, err := os.ReadFile(filepath.Join(b.Client, "pom.xml"))
	require.NoError(t, err)
	version := kotlinVersion.FindSubmatch(pom)
	require.NotNil(t, version, "pom.xml of the client has no kotlin.version")
	libraries := filepath.Join(t.TempDir(), "classpath.txt")
	ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
	defer cancel()
	project := filepath.Join(b.Client, "../../internal/interop/kotlintest/testdata/compiler/pom.xml")
	resolve := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", project, "-Dkotlin.version="+string(version[1]),
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath", "-Dmdep.outputFile="+libraries)
	out, err := resolve.CombinedOutput()
	require.NoError(t, err, "%s", out)
	classpath, err := os.ReadFile(libraries)
	require.NoError(t, err)
	return &Compiler{b, strings.TrimSpace(string(classpath))}
}

// Compile compiles files and folders into a directory, where a warning is an error too, and returns what the compiler has printed.
func (c *Compiler) Compile(ctx context.Context, dir string, sources ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	arguments := append([]string{
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-cp", c.classpath, "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler",
		"-no-stdlib", "-no-reflect", "-Werror", "-jvm-target", "1.8", "-Xplugin=" + plugin.FindString(c.classpath),
		"-cp", c.build.classpath, "-d", dir,
	}, sources...)
	out, err := exec.CommandContext(ctx, "java", arguments...).CombinedOutput()
	if err != nil {
		return out, fmt.Errorf("the compiler of Kotlin: %w", err)
	}
	return out, nil
}

// Program returns the command that runs the main function of a class that is compiled.
func (c *Compiler) Program(ctx context.Context, dir, class string, arguments ...string) *exec.Cmd {
	command := []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", dir + string(os.PathListSeparator) + c.build.classpath, class}
	return exec.CommandContext(ctx, "java", append(command, arguments...)...)
}
