// Package kotlintest builds the Kotlin client with Maven for tests, and runs its programs.
package kotlintest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// buildTimeout bounds a build, with the download of the compiler.
const buildTimeout = 8 * time.Minute

// A Build is the Kotlin client and its tests, compiled.
type Build struct {
	Client string // the absolute path of clients/kotlin
	Target string // the directory with the jars and classes

	classpath string
}

// clientDir is the directory of the client, seen from a package of internal/interop.
const clientDir = "../../../clients/kotlin"

// Find returns the compiled client, and builds it if no test has built these sources before. Without Maven, a compiler of Java or a
// connection to Maven Central, the test is skipped, or fails if PENSTOCK_REQUIRE_JAVA=1 or CI=true is set.
func Find(t testing.TB) *Build {
	t.Helper()
	found := find()
	if found.missing != "" && (os.Getenv("PENSTOCK_REQUIRE_JAVA") == "1" || os.Getenv("CI") == "true") {
		t.Fatalf("%s; PENSTOCK_REQUIRE_JAVA=1 or CI=true requires it", found.missing)
	}
	if found.missing != "" {
		t.Skip(found.missing)
	}
	require.NoError(t, found.err)
	return &found.Build
}

type outcome struct {
	Build

	missing string // what this machine does not have
	err     error
}

var find = sync.OnceValue(func() *outcome {
	o := &outcome{}
	for _, program := range []string{"mvn", "javac"} {
		if _, err := exec.LookPath(program); err != nil {
			o.missing = program + " is not installed; this test builds the Kotlin client with Maven and Java 17"
			return o
		}
	}
	if o.Client, o.err = filepath.Abs(clientDir); o.err != nil {
		return o
	}
	if o.Target, o.missing, o.err = build(o.Client); o.missing == "" && o.err == nil {
		o.classpath, o.err = classpath(o.Target)
	}
	return o
})

// unreachable matches what Maven prints if it cannot reach its repository.
var unreachable = regexp.MustCompile(`Could not transfer artifact|Unknown host|Connection refused|in offline mode`)

// build returns a directory with the result of a build. It is in the cache of the user, by the sources and the version of Java.
func build(client string) (dir, missing string, err error) {
	sum, err := hashOf(client)
	if err != nil {
		return "", "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", err
	}
	dir = filepath.Join(cache, "penstock-kotlintest", sum)
	if _, err := os.Stat(dir); err == nil {
		return dir, "", nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return "", "", err
	}
	building, err := os.MkdirTemp(filepath.Dir(dir), "building")
	if err != nil {
		return "", "", err
	}
	defer func() { _ = os.RemoveAll(building) }()
	if out, err := pack(context.Background(), client, building); err != nil {
		if unreachable.Match(out) {
			return "", "Maven Central cannot be reached, and Maven has not cached what the Kotlin client needs", nil
		}
		return "", "", fmt.Errorf("mvn package: %s%w", out, err)
	}
	if err := os.Rename(building, dir); err != nil { // another test may have been faster
		if _, missing := os.Stat(dir); missing != nil {
			return "", "", err
		}
	}
	return dir, "", nil
}

// hashOf returns the hash of the version of Java and of all files from which the client is built.
func hashOf(client string) (string, error) {
	h := sha256.New()
	version, err := exec.Command("javac", "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("javac -version: %w", err)
	}
	h.Write(version)
	files := os.DirFS(client)
	add := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(text), text)
		return err
	}
	for _, root := range []string{"pom.xml", "src"} {
		if err := fs.WalkDir(files, root, add); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:12]), nil
}

// pack compiles the client and its tests into a directory, with the jars, and returns what Maven has printed.
func pack(ctx context.Context, client, target string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	command := maven(ctx, client, target, "package", "dependency:build-classpath", "-DskipTests", "-Dmdep.outputFile="+filepath.Join(target, "classpath.txt"))
	return command.CombinedOutput()
}

func maven(ctx context.Context, client, target string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "mvn", append([]string{"-q", "-B", "-Dstyle.color=never", "-Dpenstock.target=" + target}, arguments...)...)
	command.Dir = client
	return command
}

func classpath(target string) (string, error) {
	libraries, err := os.ReadFile(filepath.Join(target, "classpath.txt"))
	if err != nil {
		return "", err
	}
	own := []string{filepath.Join(target, "classes"), filepath.Join(target, "test-classes"), strings.TrimSpace(string(libraries))}
	return strings.Join(own, string(os.PathListSeparator)), nil
}

// Driver returns the command that runs the driver of the scenarios, with a clock that is faster by scale.
func (b *Build) Driver(ctx context.Context, scale string) *exec.Cmd {
	// The virtual machine begins sooner with one compiler and one thread for its memory.
	return exec.CommandContext(ctx, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", b.classpath, "penstock.client.DriverKt", scale)
}

// Test returns the command that runs the tests of the client.
func (b *Build) Test(ctx context.Context) *exec.Cmd {
	return maven(ctx, b.Client, b.Target, "surefire:test")
}
