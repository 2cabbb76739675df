package penstock_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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

// TestDocuments_ProgramsCompile vets every program, which builds all that it imports.
func TestDocuments_ProgramsCompile(t *testing.T) {
	testscale.FullOnly(t, "TestDocuments_ProgramsUseWhatExists")
	found := 0
	for _, path := range documents(t) {
		for name, blocks := range programs(t, path) {
			found++
			t.Run(path+" "+name, func(t *testing.T) { vet(t, blocks) })
		}
	}
	assert.Positive(t, found)
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

func vet(t *testing.T, blocks []string) {
	//nolint:usetesting // it must be inside the module, so that its packages are found
	dir, err := os.MkdirTemp(".", "_program")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for i, source := range blocks {
		name := fmt.Sprint("file", i, ".go")
		if strings.Contains(source, "*testing.T") {
			name = fmt.Sprint("file", i, "_test.go")
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600))
	}
	out, err := exec.Command("go", "vet", "./"+dir).CombinedOutput()
	assert.NoError(t, err, "%s", out)
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
func documents(t *testing.T) []string {
	var paths []string
	require.NoError(t, filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") && path != "." {
			return fs.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			paths = append(paths, path)
		}
		return nil
	}))
	return paths
}
