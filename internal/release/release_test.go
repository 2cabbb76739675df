package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
)

const version = "v0.1.0"

func TestRun_RejectsArguments(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"none":               {nil, "usage"},
		"no version":         {[]string{"prepare"}, "usage"},
		"an unknown command": {[]string{"publish", version}, "usage"},
		"no folder":          {[]string{"proxy", version}, "usage"},
		"a short version":    {[]string{"prepare", "v0.1"}, "must have the form v0.1.0"},
		"a build":            {[]string{"prepare", "v0.1.0+linux"}, "must have the form v0.1.0"},
		"no letter":          {[]string{"prepare", "0.1.0"}, "must have the form v0.1.0"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ErrorContains(t, run(t.Context(), c.args), c.want)
		})
	}
}

// write writes files, whose names are relative to a new folder.
func write(t *testing.T, files map[string]string) (dir string) {
	dir = t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

func TestPublished(t *testing.T) {
	const path = "module github.com/penstock-go/penstock"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
		err   string
	}{
		"modules follow what they require": {map[string]string{
			"go.mod":              path,
			"a/go.mod":            path + "/a\nrequire github.com/penstock-go/penstock/b v0.0.0\n",
			"b/go.mod":            path + "/b\nrequire github.com/penstock-go/penstock v0.0.0\n",
			"internal/x/go.mod":   path + "/internal/x",
			"b/testdata/c/go.mod": path + "/c",
		}, []string{".", "b", "a"}, ""},
		"a module requires what is not published": {map[string]string{
			"go.mod":            path,
			"a/go.mod":          path + "/a\nrequire github.com/penstock-go/penstock/internal/x v0.0.0\n",
			"internal/x/go.mod": path + "/internal/x",
		}, nil, "not published"},
		"modules require each other": {map[string]string{
			"go.mod":   path,
			"a/go.mod": path + "/a\nrequire github.com/penstock-go/penstock/b v0.0.0\n",
			"b/go.mod": path + "/b\nrequire github.com/penstock-go/penstock/a v0.0.0\n",
		}, nil, "require each other"},
		"a module has errors": {map[string]string{"go.mod": "modul"}, nil, "go.mod:1"},
	} {
		t.Run(name, func(t *testing.T) {
			dirs, err := published(write(t, c.files))
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, dirs)
		})
	}
}

// TestRelease_InstallsIntoEmptyFolder installs each module as its users do, from a proxy that has the
// committed files.
func TestRelease_InstallsIntoEmptyFolder(t *testing.T) {
	testscale.FullOnly(t, "TestPublished")
	proxy := t.TempDir()
	require.NoError(t, run(t.Context(), []string{"proxy", version, proxy}))
	env, err := environment(t.Context(), proxy, t.TempDir())
	require.NoError(t, err)
	bin := t.TempDir()
	env = append(env, "GOBIN="+bin)
	command := func(t *testing.T, dir, name string, args ...string) string {
		c := exec.CommandContext(t.Context(), name, args...)
		c.Dir, c.Env = dir, env
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
		return string(out)
	}
	t.Run("module", func(t *testing.T) {
		readme, err := os.ReadFile("../../README.md")
		require.NoError(t, err)
		_, program, _ := strings.Cut(string(readme), "```go\n")
		program, _, _ = strings.Cut(program, "```")
		dir := write(t, map[string]string{"main.go": program})
		command(t, dir, "go", "mod", "init", "example.com/lobby")
		command(t, dir, "go", "get", rootPath+"@"+version)
		command(t, dir, "go", "mod", "tidy")
		command(t, dir, "go", "build", "-o", os.DevNull)
		assert.LessOrEqual(t, len(strings.Fields(command(t, dir, "go", "list", "-m", "-f", "{{.Path}}", "all"))), maxModules)
	})
	for _, program := range []string{"cmd/penstock", "codec/jsoncode/cmd/jsoncode"} {
		t.Run(program, func(t *testing.T) {
			dir := t.TempDir()
			command(t, dir, "go", "install", rootPath+"/"+program+"@"+version)
			var build struct{ Main struct{ Version string } }
			require.NoError(t, json.Unmarshal([]byte(command(t, dir, "go", "version", "-m", "-json", filepath.Join(bin, filepath.Base(program)))), &build))
			assert.Equal(t, version, build.Main.Version)
		})
	}
}

// TestPrepare_LeavesNoReplacement prepares a clone.
func TestPrepare_LeavesNoReplacement(t *testing.T) {
	testscale.FullOnly(t, "TestPublished")
	root := filepath.Join(t.TempDir(), "clone")
	out, err := exec.CommandContext(t.Context(), "git", "clone", "-q", "../..", root).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NoError(t, prepare(t.Context(), root, version))
	dirs, err := published(root)
	require.NoError(t, err)
	for _, dir := range dirs {
		mod, err := readMod(filepath.Join(root, dir, "go.mod"))
		require.NoError(t, err)
		assert.Empty(t, mod.Replace, dir)
		for _, r := range mod.Require {
			if strings.HasPrefix(r.Mod.Path, rootPath) {
				assert.Equal(t, version, r.Mod.Version, "%s requires %s", dir, r.Mod.Path)
			}
		}
	}
	out, err = exec.CommandContext(t.Context(), "git", "-C", root, "status", "--porcelain").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		assert.Regexp(t, `/go\.(mod|sum)\n$`, line, "only these files change")
	}
}

// maxModules bounds what `go list -m all` prints for the program in README.md: its module, Penstock, and
// the modules that Penstock requires for any of its packages.
const maxModules = 30
