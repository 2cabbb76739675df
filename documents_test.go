package penstock_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
)

var program = regexp.MustCompile("(?ms)^```go\n(package (\\w+)$.*?)^```$")

// programs returns the Go blocks of a document that begin with a package clause, by package. The
// blocks of a package that is not main belong together.
func programs(t *testing.T, path string) map[string][]string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	packages := map[string][]string{}
	for i, block := range program.FindAllStringSubmatch(string(text), -1) {
		name := block[2]
		if name == "main" {
			name = fmt.Sprint(name, i)
		}
		packages[name] = append(packages[name], block[1])
	}
	return packages
}

// TestDocuments_ProgramsCompile vets every program, which builds all that it imports. Those of a
// module are vetted together, because each call of the go command reads all that they import.
func TestDocuments_ProgramsCompile(t *testing.T) {
	testscale.FullOnly(t, "TestDocuments_ProgramsUseWhatExists")
	folders := map[string][]string{} // of the programs in each module
	for _, path := range documents(t) {
		for name, blocks := range programs(t, path) {
			module := moduleOf(blocks)
			folders[module] = append(folders[module], writeProgram(t, module, path+" "+name, blocks))
		}
	}
	assert.NotEmpty(t, folders)
	for module, folders := range folders {
		out, err := exec.Command("go", append([]string{"vet", "-C", module}, folders...)...).CombinedOutput() //nolint:gosec // the folders are those above
		assert.NoError(t, err, "%s", out)
	}
}

// TestDocuments_ProgramsUseWhatExists parses every program, and looks up the identifiers that it uses
// of this module.
func TestDocuments_ProgramsUseWhatExists(t *testing.T) {
	found := 0
	for _, path := range documents(t) {
		for name, blocks := range programs(t, path) {
			for _, source := range blocks {
				found++
				problems, err := missingIdentifiers(source)
				assert.NoError(t, err, "%s %s", path, name)
				assert.Empty(t, problems, "%s %s", path, name)
			}
		}
	}
	assert.Positive(t, found)
}

// TestReadme_ProgramIsInPackageDocumentation compares doc.go with README.md. The program
// itself is vetted by TestDocuments_ProgramsCompile.
func TestReadme_ProgramIsInPackageDocumentation(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	programs := program.FindAllSubmatch(readme, -1)
	require.Len(t, programs, 1)
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	text := regexp.MustCompile("(?m)^//\t?").ReplaceAllString(string(doc), "")
	assert.Contains(t, text, string(programs[0][1]))
}

// moduleOf returns the folder of the module that has all that a program imports.
func moduleOf(blocks []string) string {
	switch all := strings.Join(blocks, ""); {
	case strings.Contains(all, `"go.opentelemetry.io/otel`):
		return "internal/interop" // requires an exporter
	case strings.Contains(all, `/adapters/aisdk"`):
		return "adapters/aisdk"
	case strings.Contains(all, `/adapters/durableobject"`):
		return "adapters/durableobject"
	case strings.Contains(all, `/adapters/postgres"`):
		return "adapters/postgres"
	case strings.Contains(all, `/durablestreams"`):
		return "durablestreams"
	case strings.Contains(all, `/outbound"`):
		return "outbound"
	default:
		return "."
	}
}

// writeProgram writes a program to a new folder of the module, whose path there it returns. The
// folder has the name of the program, which messages about it begin with.
func writeProgram(t *testing.T, module, name string, blocks []string) string {
	name = regexp.MustCompile(`\W+`).ReplaceAllString(name, "_")
	//nolint:usetesting // it must be inside the module, so that its packages are found
	dir, err := os.MkdirTemp(module, "_program_"+name+"_")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for i, source := range blocks {
		name := fmt.Sprint("file", i, ".go")
		if strings.Contains(source, "*testing.T") {
			name = fmt.Sprint("file", i, "_test.go")
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600))
	}
	return "./" + filepath.Base(dir)
}

var link = regexp.MustCompile(`\]\(([^)#:\s]+(?:\.(?:md|svg|png|json|yml)|/))(?:#[^)]*)?\)`)

func TestDocuments_LinksExist(t *testing.T) {
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, match := range link.FindAllSubmatch(text, -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(path), string(match[1])))
			assert.NoError(t, err, "%s", path)
		}
	}
}

// TestDocuments_IndexHasEveryPage reads docs/README.md, which the sidebar of the website follows.
func TestDocuments_IndexHasEveryPage(t *testing.T) {
	index, err := os.ReadFile("docs/README.md")
	require.NoError(t, err)
	for _, path := range documents(t) {
		page, isPage := strings.CutPrefix(filepath.ToSlash(path), "docs/")
		if isPage && page != "README.md" && !strings.HasPrefix(page, "decisions/") {
			assert.True(t, strings.Contains(string(index), "]("+page+")"), "docs/README.md has no link to %s", page)
		}
	}
}

// TestDocuments_PicturesAreDescribed looks for a document with each picture, and for its description.
func TestDocuments_PicturesAreDescribed(t *testing.T) {
	var text strings.Builder
	for _, path := range documents(t) {
		text.WriteString(prose(t, path))
	}
	for _, path := range filesOf(t, ".svg") {
		if strings.HasPrefix(filepath.ToSlash(path), "docs/") {
			described := regexp.MustCompile(`!\[[^\]]{30,}\]\([^)]*\b` + regexp.QuoteMeta(filepath.Base(path)) + `\)`)
			assert.True(t, described.MatchString(text.String()), "no document has %s with a description", path)
		}
	}
}

var anchored = regexp.MustCompile(`\]\(([^)#:\s]*)#([^)\s]+)\)`)

// TestDocuments_AnchorsExist looks for the heading behind each link to a part of a document.
func TestDocuments_AnchorsExist(t *testing.T) {
	found := 0
	for _, path := range documents(t) {
		for _, match := range anchored.FindAllStringSubmatch(prose(t, path), -1) {
			target := path
			if match[1] != "" {
				target = filepath.Join(filepath.Dir(path), match[1])
			}
			if filepath.Ext(target) == ".md" {
				found++
				assert.Contains(t, anchors(t, target), match[2], "%s links to %s#%s", path, target, match[2])
			}
		}
	}
	assert.Greater(t, found, 100)
}

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	heading   = regexp.MustCompile(`(?m)^#+ (.+)$`)
	linked    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns those of the headings of a document, as GitHub makes them.
func anchors(t *testing.T, path string) []string {
	var all []string
	count := map[string]int{}
	for _, match := range heading.FindAllStringSubmatch(prose(t, path), -1) {
		text := strings.ToLower(linked.ReplaceAllString(match[1], "$1"))
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return r
			}
			return -1
		}, text)
		if n := count[anchor]; n > 0 {
			all = append(all, fmt.Sprintf("%s-%d", anchor, n))
		} else {
			all = append(all, anchor)
		}
		count[anchor]++
	}
	return all
}

// prose returns a document without its blocks of code.
func prose(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return codeBlock.ReplaceAllString(string(text), "")
}

// TestContributing_TreeIsComplete compares the folders of the source tree with what exists.
func TestContributing_TreeIsComplete(t *testing.T) {
	_, table, _ := strings.Cut(prose(t, "CONTRIBUTING.md"), "## Source tree\n")
	var folders []string
	for _, row := range regexp.MustCompile(`(?m)^\| ((?:`+"`"+`[\w/.-]+/`+"`"+`(?:, )?)+) \|`).FindAllStringSubmatch(table, -1) {
		for _, folder := range regexp.MustCompile("`([^`]+)/`").FindAllStringSubmatch(row[1], -1) {
			folders = append(folders, folder[1])
			assert.DirExists(t, folder[1])
		}
	}
	packages, err := listPackages()
	require.NoError(t, err)
	for path, pkg := range packages {
		if name, ok := strings.CutPrefix(path, module+"/"); ok && pkg.isOurs() {
			assert.True(t, slices.ContainsFunc(folders, func(folder string) bool {
				return strings.HasPrefix(name+"/", folder+"/")
			}), "the tree in CONTRIBUTING.md has no folder of the package %s", name)
		}
	}
}

// TestDecisions_AreShort bounds the words of each decision.
func TestDecisions_AreShort(t *testing.T) {
	paths, err := filepath.Glob("docs/decisions/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(strings.Fields(string(text))), 200, "words of %s", path)
	}
}

// TestDocuments_NamedTestsExist holds the documents that name the test of a statement.
func TestDocuments_NamedTestsExist(t *testing.T) {
	existing := map[string]bool{}
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range testFunction.FindAllSubmatch(text, -1) {
			existing[string(match[1])] = true
		}
		return err
	}))
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, match := range namedTest.FindAllSubmatch(text, -1) {
			assert.True(t, existing[string(match[1])], "%s names %s", path, match[1])
		}
	}
}

var (
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	namedTest    = regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*_\\w+)`")
)

// documents returns the Markdown files of the project.
func documents(t *testing.T) []string { return filesOf(t, ".md") }

// filesOf returns the paths of the project's files with one of the extensions.
func filesOf(t *testing.T, extensions ...string) []string {
	var paths []string
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") && path != "." {
			return fs.SkipDir
		}
		if slices.Contains(extensions, filepath.Ext(path)) {
			paths = append(paths, path)
		}
		return nil
	}))
	return paths
}
