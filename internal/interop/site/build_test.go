package site_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/nodetest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// base is the folder of the site on its host, as that of a version.
const base = "/v0.1/"

// packages has node_modules with the packages of website/, and copies of repositories below it, which
// use them.
var packages nodetest.Directory

func TestMain(m *testing.M) { packages.Main(m) }

// workspace returns the directory in which node_modules is.
func workspace(t *testing.T) string {
	t.Helper()
	return packages.Path(t, func(dir string) {
		for _, name := range []string{"package.json", "package-lock.json"} {
			copyFile(t, filepath.Join(repository, "website", name), filepath.Join(dir, name))
		}
	})
}

// build builds the site of a copy of the repository in a directory of the workspace.
func build(t *testing.T, dir string) (output string, err error) {
	t.Helper()
	vitepress := filepath.Join(workspace(t), "node_modules/.bin/vitepress")
	return run(t, filepath.Join(dir, "website"), []string{"SITE_URL=https://site.example" + base, "SITE_REF=v0.1.0"}, vitepress, "build")
}

var built struct {
	once   sync.Once
	dir    string
	output string
	err    error
}

// site returns the directory with the site of the repository, which the tests share.
func site(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		dir := filepath.Join(workspace(t), "repository")
		copyRepository(t, dir)
		built.output, built.err = build(t, dir)
		built.dir = filepath.Join(dir, "website/.vitepress/dist")
	})
	require.NoError(t, built.err, built.output)
	return built.dir
}

// serve serves the site of the repository, and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	dir := site(t)
	files := http.StripPrefix(strings.TrimSuffix(base, "/"), http.FileServer(http.Dir(dir)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.URL.Path, base)
		if _, err := fs.Stat(os.DirFS(dir), strings.TrimSuffix(name, "/")); ok && (name == "" || err == nil) {
			files.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNotFound)
		page, _ := os.ReadFile(filepath.Join(dir, "404.html"))
		_, _ = w.Write(page)
	}))
	t.Cleanup(server.Close)
	return server.URL + base
}

func TestSite_HasAllPagesAndFiles(t *testing.T) {
	testscale.FullOnly(t, "TestSidebar_HasEveryPage")
	dir := site(t)
	assert.NotContains(t, built.output, "falling back", "the language of a code block is unknown; add it to languageAlias in website/.vitepress/config.mjs")
	llms, err := os.ReadFile(filepath.Join(dir, "llms.txt"))
	require.NoError(t, err)
	full, err := os.ReadFile(filepath.Join(dir, "llms-full.txt"))
	require.NoError(t, err)
	sitemap, err := os.ReadFile(filepath.Join(dir, "sitemap.xml"))
	require.NoError(t, err)
	pages := append(markdownFiles(t, "docs"), "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
		"clients/ts/README.md", "examples/chat/README.md", "examples/board/README.md", "cmd/penstock/README.md")
	for _, page := range evaluate[[]string](t, "pageOf", "repository", quote(t, pages)+".map(pageOf)") {
		html := strings.TrimSuffix(page, ".md") + ".html"
		assert.FileExists(t, filepath.Join(dir, html))
		assert.FileExists(t, filepath.Join(dir, page))
		assert.Contains(t, string(llms), "(https://site.example"+base+page+")")
		assert.Contains(t, string(full), "<!-- https://site.example"+base+page+" -->")
		assert.Contains(t, string(sitemap), "https://site.example"+base+strings.TrimSuffix(html, "index.html"))
	}
	home, err := os.ReadFile(filepath.Join(dir, "index.html"))
	require.NoError(t, err)
	assert.Contains(t, string(home), "ListenAndServe", "the first program of README.md")
}

func TestSite_LinksToCodeAndPackagesOfItsVersion(t *testing.T) {
	testscale.FullOnly(t, "TestResolveLink_LeadsToPageOrForge")
	var html strings.Builder
	dir := site(t)
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".html" {
			var text []byte
			text, err = os.ReadFile(path)
			html.Write(text)
		}
		return err
	}))
	for _, link := range []string{
		`href="https://github.com/penstock-go/penstock/blob/v0.1.0/`,
		`href="https://github.com/penstock-go/penstock/edit/main/docs/guides/getting-started.md"`,
		`href="https://pkg.go.dev/github.com/penstock-go/penstock@v0.1.0/limit#AllOf"`,
	} {
		assert.True(t, strings.Contains(html.String(), link), "no page has %s", link) // the pages are too long to print
	}
	assert.False(t, strings.Contains(html.String(), `penstock-go/penstock/blob/main/`), "links to pages and code of another version")
}

// small is a repository with what the navigation links to.
var small = map[string]string{
	"go.mod":                       "module github.com/penstock-go/penstock\n",
	"router/router.go":             "// Package router is for a test.\npackage router\n\n// Options are for a test.\ntype Options struct{}\n",
	"CHANGELOG.md":                 "# Changelog\n",
	"docs/README.md":               "# Documentation\n\n## All\n\n- [Protocol](protocol.md)\n- [Guide](guides/guide.md)\n",
	"docs/protocol.md":             "# Protocol\n\n## 5. Close codes\n",
	"docs/guides/guide.md":         "# Guide\n\n[codes](../protocol.md#5-close-codes), `router.Options`, `router.None`, [code](../../router/router.go)\n",
	"website/index.md":             "# Home\n\n[Guide](../docs/guides/guide.md)\n",
	"docs/decisions/0001-first.md": "# 1. First\n",
	"website/package.json":         `{"type":"module"}`,
}

func TestBuild_FailsOnBrokenLinks(t *testing.T) {
	testscale.FullOnly(t, "TestBrokenLinks_ReportsPagesAndFragments")
	for _, test := range testscale.SoakSample([]struct{ name, guide, want string }{
		{"none", "", ""},
		{"page", "[gone](gone.md)", "dead link ./gone in file docs/guides/guide.md"},
		{"fragment", "[section 6](../protocol.md#6-none)", "guides/guide.html: " + base + "protocol.html#6-none: the page has no heading or element #6-none"},
		{"code", "[gone](../../router/gone.go)", "dead link ./../../router/gone.go in file docs/guides/guide.md"},
	}, 2) {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(workspace(t), test.name)
			nodetest.CopySources(t, filepath.Join(repository, "website/.vitepress"), filepath.Join(dir, "website/.vitepress"))
			for name, text := range small {
				if name == "docs/guides/guide.md" {
					text += test.guide
				}
				path := filepath.Join(dir, name)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			}
			out, err := build(t, dir)
			if test.want != "" {
				require.Error(t, err, out)
				assert.Contains(t, out, test.want)
				return
			}
			require.NoError(t, err, out)
			html, err := os.ReadFile(filepath.Join(dir, "website/.vitepress/dist/guides/guide.html"))
			require.NoError(t, err)
			assert.Contains(t, string(html), `pkg.go.dev/github.com/penstock-go/penstock@v0.1.0/router#Options"`)
			assert.NotContains(t, string(html), "#None")
		})
	}
}

func copyRepository(t *testing.T, to string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		hidden := strings.HasPrefix(name, ".") && name != ".vitepress" && path != repository
		switch target := filepath.Join(to, strings.TrimPrefix(filepath.ToSlash(path), repository)); {
		case entry.IsDir() && (hidden || name == "node_modules" || name == "dist" || name == "cache" || strings.HasPrefix(name, "_")):
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(target, 0o700)
		case entry.Type().IsRegular():
			copyFile(t, path, target)
		}
		return nil
	}))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, content, 0o600))
}
