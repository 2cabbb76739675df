package site_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type section struct {
	Text  string
	Items []struct{ Text, Link string }
}

func TestSidebar_HasEveryPage(t *testing.T) {
	linked := map[string]bool{}
	for _, s := range evaluate[[]section](t, "sidebar", "sidebar", "sidebar()") {
		assert.NotEmpty(t, s.Text)
		assert.NotEmpty(t, s.Items, s.Text)
		for _, item := range s.Items {
			assert.NotEmpty(t, item.Text, item.Link)
			linked[item.Link] = true
		}
	}
	pages := evaluate[[]string](t, "pageOf, pathOf", "repository", quote(t, markdownFiles(t, "docs"))+".map(pageOf).map(pathOf)")
	require.Greater(t, len(pages), 50)
	for _, page := range pages {
		assert.True(t, linked[page] || page == "/docs/", page)
	}
}

func TestPageOf_KnowsEveryMarkdownFile(t *testing.T) {
	files := slices.DeleteFunc(markdownFiles(t, "."), func(file string) bool {
		return file == "website/README.md" || strings.Contains("/"+file, "/testdata/") ||
			strings.Contains("/"+file, "/node_modules/") || strings.HasPrefix(file, ".")
	})
	require.Greater(t, len(files), 80)
	for i, page := range evaluate[[]*string](t, "pageOf", "repository", quote(t, files)+".map((file) => pageOf(file) ?? null)") {
		assert.NotNil(t, page, "%s has no place on the site; add it to pageOf in website/.vitepress/repository.mjs", files[i])
	}
}

func TestResolveLink_LeadsToPageOrForge(t *testing.T) {
	for link, want := range map[string]string{
		"../protocol.md#5-close-codes":     "/protocol.html#5-close-codes",
		"getting-started.md":               "/guides/getting-started.html",
		"../../README.md":                  "/readme.html",
		"../../clients/ts/README.md#react": "/clients/ts/#react",
		"../../examples/chat":              "/examples/chat/",
		"../../website/README.md":          "https://github.com/penstock-go/penstock/blob/main/website/README.md",
		"../../limit/limiter.go#L10":       "https://github.com/penstock-go/penstock/blob/main/limit/limiter.go#L10",
		"../../adapters/redis/":            "https://github.com/penstock-go/penstock/tree/main/adapters/redis",
		"https://github.com/penstock-go/penstock/blob/main/docs/protocol.md#pacing": "/protocol.html#pacing",
		"https://github.com/penstock-go/penstock/tree/main/examples/chat":           "/examples/chat/",
		"https://github.com/penstock-go/penstock":                                   "https://github.com/penstock-go/penstock",
		"#here":                             "#here",
		"missing.md":                        "missing",
		"../../../../../../../../etc/hosts": "missing",
	} {
		got := evaluate[string](t, "resolveLink", "repository", `resolveLink("docs/guides/scaling.md", `+quote(t, link)+`) ?? "missing"`)
		assert.Equal(t, want, got, link)
	}
	out, err := evaluation(t, "resolveLink", "repository", `resolveLink("clients/ts/README.md", "https://github.com/penstock-go/penstock/blob/main/docs/none.md")`)
	assert.Error(t, err)
	assert.Contains(t, out, "clients/ts/README.md: https://github.com/penstock-go/penstock/blob/main/docs/none.md does not exist")
}

func TestBrokenLinks_ReportsPagesAndFragments(t *testing.T) {
	folder := t.TempDir()
	for name, html := range map[string]string{
		"index.html":   `<meta name="none"><h1 id="top"></h1><a href="/v1/a/">a</a> <a class="x" href="/v1/a/#caf%C3%A9">b</a> <a href="#top">c</a> <a href="https://example.org/none">d</a>`,
		"a/index.html": `<h2 id="café" tabindex="-1"></h2><a href="../index.html#top">a</a><img src="/v1/picture.svg"><a href="mailto:a@example.org">b</a>`,
		"bad.html":     `<a href="/v1/none.html">a</a><a href="/v1/a/#none">b</a><a href="#none">c</a><img alt="" src="/v1/none.svg"><a href="/a/">d</a>`,
		"picture.svg":  ``,
	} {
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(html), 0o600))
	}
	got := evaluate[[]string](t, "brokenLinks", "check", "brokenLinks("+quote(t, folder)+`, "/v1/")`)
	assert.Equal(t, []string{
		"bad.html: /v1/none.html does not exist",
		"bad.html: /v1/a/#none: the page has no heading or element #none",
		"bad.html: #none: the page has no heading or element #none",
		"bad.html: /v1/none.svg does not exist",
		"bad.html: /a/ does not exist",
	}, got)
}

func TestMarkdown_HasLinksThatWorkOutsideTheRepository(t *testing.T) {
	folder := t.TempDir()
	sections := `[{ text: "Guides", items: [{ text: "", link: "/guides/scaling.html#measured-faults" }] }]`
	files := `["website/index.md", "README.md", "docs/guides/scaling.md", "clients/ts/README.md"]`
	evaluate[any](t, "writeTexts", "llms", "writeTexts("+quote(t, folder)+`, "/v1/", "A description.", `+sections+", "+files+") ?? null")
	list, err := os.ReadFile(filepath.Join(folder, "llms.txt"))
	require.NoError(t, err)
	assert.Regexp(t, `^# Penstock\n\n> A description.\n`+
		`\n## Guides\n\n- \[.+\]\(/v1/guides/scaling.md\)\n`+
		`\n## More\n\n- \[.+\]\(/v1/clients/ts/index.md\)\n- \[Penstock\]\(/v1/readme.md\)\n$`, string(list))
	readme, err := os.ReadFile(filepath.Join(folder, "readme.md"))
	require.NoError(t, err)
	assert.Contains(t, string(readme), "](/v1/protocol.html)")
	assert.NotContains(t, string(readme), "](docs/guides/")
	client, err := os.ReadFile(filepath.Join(folder, "clients/ts/index.md"))
	require.NoError(t, err)
	assert.Contains(t, string(client), "](/v1/protocol.html)", "a link to the forge")
}
