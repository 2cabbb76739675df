package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAPI_ChangesSinceLastRelease changes a repository with two modules after its release.
func TestAPI_ChangesSinceLastRelease(t *testing.T) {
	files := map[string]string{
		"go.mod":             "module github.com/penstock-go/penstock\n\ngo 1.26.0\n",
		"a/a.go":             "package a\n\n// F is exported.\nfunc F(n int) int { return n }\n",
		"internal/i/i.go":    "package i\n\n// I is internal.\nfunc I(n int) int { return n }\n",
		"examples/x/x/x.go":  "package x\n\n// X is of an example.\nfunc X(n int) int { return n }\n",
		"nested/go.mod":      "module github.com/penstock-go/penstock/nested\n\ngo 1.26.0\n\nrequire github.com/penstock-go/penstock v0.1.0\n",
		"nested/b.go":        "package nested\n\nimport \"github.com/penstock-go/penstock/a\"\n\n// G is exported.\nfunc G() int { return a.F(1) }\n",
		"nested/cmd/main.go": "package main\n\n// Main is exported, but no other package can import it.\nfunc Main(int) {}\n\nfunc main() { Main(1) }\n",
	}
	root := write(t, files)
	git(t, root, "init", "-q")
	git(t, root, "add", ".")
	git(t, root, "commit", "-qm", "first")
	list := func(version string) (string, error) {
		var out strings.Builder
		err := api(t.Context(), &out, root, version)
		return out.String(), err
	}

	out, err := list("v0.1.0")
	require.NoError(t, err)
	assert.Equal(t, "no release before v0.1.0: nothing to compare with\n", out)
	git(t, root, "tag", "v0.1.0")
	git(t, root, "tag", "v0.1.1-rc.1")
	git(t, root, "tag", "vnext")

	for _, c := range []struct {
		name, file, text, by string
		want                 string // a change, or "" for none
		patch                string // the error of a patch version
	}{
		{"internal", "internal/i/i.go", "(n int) int", "(n, m int) int", "", ""},
		{"example", "examples/x/x/x.go", "(n int) int", "(n, m int) int", "", ""},
		{"command", "nested/cmd/main.go", "func Main(int)", "func Main(n ...int)", "", ""},
		{"addition", "a/a.go", "package a\n", "package a\n\n// N is new.\nconst N = 1\n", "  compatible: ./a.N: added\n", ""},
		{"break", "a/a.go", "(n int) int", "(n int, m ...int) int", "  incompatible: ./a.F: changed from func(int) int to func(int, ...int) int\n", "v0.1.1 has 1 incompatible changes since v0.1.0; it must be the next minor version"},
		{"break of a nested module", "nested/b.go", "func G()", "func G(int)", "  incompatible: G: changed from func() int to func(int) int\n", "v0.1.1 has 2 incompatible changes since v0.1.0"},
	} {
		edit(t, filepath.Join(root, filepath.FromSlash(c.file)), c.text, c.by)
		git(t, root, "commit", "-qam", c.name)
		out, err := list("v0.2.0")
		require.NoError(t, err, c.name)
		if c.want == "" {
			assert.Equal(t, modulePath(".")+": 0 changes\n"+modulePath("nested")+": 0 changes\n", out, c.name)
		} else {
			assert.Contains(t, out, c.want, c.name)
		}
		_, err = list("v0.1.1")
		if c.patch == "" {
			assert.NoError(t, err, c.name)
		} else {
			assert.ErrorContains(t, err, c.patch, c.name)
		}
	}

	require.NoError(t, os.RemoveAll(filepath.Join(root, "nested")))
	git(t, root, "commit", "-qam", "removed")
	out, err = list("v0.2.0")
	require.NoError(t, err)
	assert.Contains(t, out, "the module is removed")
}

func TestMayBreak(t *testing.T) {
	for versions, want := range map[[2]string]bool{
		{"v0.1.0", "v0.1.1"}: false,
		{"v0.1.9", "v0.2.0"}: true,
		{"v0.9.0", "v1.0.0"}: true,
		{"v1.0.0", "v1.1.0"}: false,
		{"v1.9.0", "v2.0.0"}: true,
	} {
		assert.Equal(t, want, mayBreak(versions[0], versions[1]), "%v", versions)
	}
}
