package main

import (
	"encoding/json"
	"go/build"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
)

func TestCheckChangelog(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"released":         {"# Changelog\n\n## Unreleased\n\n## 0.1.0 - 2026-12-01\n", true},
		"unreleased":       {"# Changelog\n\n## Unreleased\n", false},
		"another version":  {"# Changelog\n\n## 0.1.1 - 2026-12-01\n", false},
		"without a date":   {"# Changelog\n\n## 0.1.0\n", false},
		"with other words": {"# Changelog\n\n## 0.1.0 - soon\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkChangelog(filepath.Join(write(t, map[string]string{"CHANGELOG.md": c.text}), "CHANGELOG.md"), version)
			if c.ok {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, `must have the heading "## 0.1.0 -"`)
		})
	}
}

func TestSetPackageVersion(t *testing.T) {
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile("../../clients/ts/" + name)
		require.NoError(t, err)
		dir := write(t, map[string]string{name: string(text)})
		require.NoError(t, setPackageVersion(filepath.Join(dir, name), "v7.8.9"))
		var got struct {
			Version  string
			Packages map[string]struct{ Version string }
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &got))
		assert.Equal(t, "7.8.9", got.Version)
		if name == "package-lock.json" {
			assert.Equal(t, "7.8.9", got.Packages[""].Version)
			assert.Equal(t, 2, strings.Count(string(data), "7.8.9"), "dependencies keep theirs")
		}
	}
	dir := write(t, map[string]string{"package.json": "{}"})
	assert.ErrorContains(t, setPackageVersion(filepath.Join(dir, "package.json"), version), "must have")
}

// maxModules bounds what `go list -m all` prints for the program in README.md: its module,
// Penstock, and the modules that Penstock requires for any of its packages.
const maxModules = 30

// TestRelease_InstallsIntoEmptyFolder prepares a release in a clone, commits it, and installs each
// module as its users do, from a proxy that has the committed files.
func TestRelease_InstallsIntoEmptyFolder(t *testing.T) {
	testscale.FullOnly(t, "TestPublished")
	root := clone(t)
	require.ErrorContains(t, prepare(t.Context(), root, version), "must have the heading")
	edit(t, filepath.Join(root, "CHANGELOG.md"), "## Unreleased\n", "## Unreleased\n\n## 0.1.0 - 2026-12-01\n")
	git(t, root, "commit", "-qam", "changelog")
	require.NoError(t, prepare(t.Context(), root, version))
	for line := range strings.Lines(git(t, root, "status", "--porcelain")) {
		assert.Regexp(t, `/(go\.(mod|sum)|package(-lock)?\.json)\s*$`, line, "only these files change")
	}
	git(t, root, "commit", "-qam", "release")
	dirs, err := published(root)
	require.NoError(t, err)
	for _, dir := range dirs {
		mod, err := readMod(filepath.Join(root, dir, "go.mod"))
		require.NoError(t, err)
		assert.Empty(t, mod.Replace, "%s: go install rejects replacements", dir)
	}

	proxy := t.TempDir()
	require.NoError(t, run(t.Context(), root, []string{"proxy", version, proxy}))
	for _, dir := range dirs {
		committed, err := os.ReadFile(filepath.Join(root, dir, "go.mod"))
		require.NoError(t, err)
		provided, err := os.ReadFile(filepath.Join(proxy, filepath.FromSlash(modulePath(dir)), "@v", version+".mod"))
		require.NoError(t, err)
		assert.Equal(t, string(committed), string(provided), "the commit is the release")
	}
	bin, cache := t.TempDir(), t.TempDir()
	env, err := environment(t.Context(), proxy, cache)
	require.NoError(t, err)
	env = append(env, "GOBIN="+bin)
	command := func(t *testing.T, dir, name string, args ...string) string {
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir, c.Env = dir, env
		out, err := output(c)
		require.NoError(t, err)
		return string(out)
	}
	program := func(t *testing.T, text, module string) (dir string) {
		dir = write(t, map[string]string{"main.go": text})
		command(t, dir, "go", "mod", "init", "example.com/lobby")
		command(t, dir, "go", "get", module+"@"+version)
		command(t, dir, "go", "mod", "tidy")
		command(t, dir, "go", "build", "-o", os.DevNull)
		return dir
	}

	t.Run("program of README.md", func(t *testing.T) {
		readme, err := os.ReadFile("../../README.md")
		require.NoError(t, err)
		_, text, _ := strings.Cut(string(readme), "```go\n")
		text, _, _ = strings.Cut(text, "```")
		dir := program(t, text, rootPath)
		assert.LessOrEqual(t, len(strings.Fields(command(t, dir, "go", "list", "-m", "-f", "{{.Path}}", "all"))), maxModules)
	})
	for _, dir := range dirs[1:] {
		for _, pkg := range packagesOf(t, filepath.Join("../..", dir)) {
			t.Run(pkg.ImportPath, func(t *testing.T) {
				if !pkg.IsCommand() {
					program(t, "package main\nimport _ \""+pkg.ImportPath+"\"\nfunc main() {}\n", modulePath(dir))
					return
				}
				command(t, t.TempDir(), "go", "install", pkg.ImportPath+"@"+version)
				var build struct{ Main struct{ Version string } }
				require.NoError(t, json.Unmarshal([]byte(command(t, bin, "go", "version", "-m", "-json", filepath.Base(pkg.ImportPath))), &build))
				assert.Equal(t, version, build.Main.Version)
			})
		}
	}
}

// packagesOf returns the packages of a module that others can import or install.
func packagesOf(t *testing.T, dir string) (pkgs []build.Package) {
	t.Helper()
	out, err := output(exec.CommandContext(t.Context(), "go", "list", "-C", dir, "-find", "-f", "{{.Name}} {{.ImportPath}}", "./..."))
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		name, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.Contains(path, "/internal/") {
			pkgs = append(pkgs, build.Package{Name: name, ImportPath: path})
		}
	}
	require.NotEmpty(t, pkgs)
	return pkgs
}
