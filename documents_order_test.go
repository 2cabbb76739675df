package penstock_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An indexEntry is a page in docs/README.md.
type indexEntry struct {
	section, title, path string // the path is relative to docs
}

// isOnPath reports whether the page ends with a link to the next one: those of the sections before
// "Reference".
func (e indexEntry) isOnPath() bool { return e.section != "Reference" }

var (
	indexComment = regexp.MustCompile(`(?s)<!--.*?-->`)
	firstLink    = regexp.MustCompile(`^(?:\| |- )\[([^\]]+)\]\(([^)]+\.md)\)`)
	lastLink     = regexp.MustCompile(`\nNext: \[([^\]]+)\]\(([^)]+)\)\n$`)
)

// readIndex returns the entries of an index in their order: the first link of each list item or row of
// a table, below a heading "##".
func readIndex(text string) (entries []indexEntry) {
	section := ""
	for line := range strings.Lines(indexComment.ReplaceAllString(text, "")) {
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(heading)
		}
		if match := firstLink.FindStringSubmatch(line); match != nil && section != "" {
			entries = append(entries, indexEntry{section, match[1], match[2]})
		}
	}
	return entries
}

// checkIndex returns what is wrong with an index. pages has the text of each page by its path.
func checkIndex(index string, pages map[string]string) (problems []string) {
	entries := readIndex(index)
	listed := map[string]int{}
	for i, entry := range entries {
		listed[entry.path]++
		text, exists := pages[entry.path]
		if !exists || !entry.isOnPath() || i+1 == len(entries) {
			continue
		}
		next := entries[i+1]
		to, _ := filepath.Rel(filepath.Dir(entry.path), next.path)
		match := lastLink.FindStringSubmatch(text)
		if match == nil || match[1] != next.title || match[2] != filepath.ToSlash(to) {
			problems = append(problems, fmt.Sprintf("%s must end with the line: Next: [%s](%s)", entry.path, next.title, filepath.ToSlash(to)))
		}
	}
	for page := range pages {
		if listed[page] != 1 {
			problems = append(problems, fmt.Sprintf("%s is %d times in the index, and must be there once", page, listed[page]))
		}
	}
	return problems
}

// TestDocuments_IndexHasEveryPageInOrder compares docs/README.md with the pages that exist.
func TestDocuments_IndexHasEveryPageInOrder(t *testing.T) {
	index, err := os.ReadFile("docs/README.md")
	require.NoError(t, err)
	pages := map[string]string{}
	for _, path := range documents(t) {
		name, isPage := strings.CutPrefix(filepath.ToSlash(path), "docs/")
		if !isPage || name == "README.md" || strings.HasPrefix(name, "decisions/") {
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		pages[name] = string(text)
	}
	for _, problem := range checkIndex(string(index), pages) {
		assert.Fail(t, problem)
	}
}

func TestDocuments_IndexProblemsAreFound(t *testing.T) {
	const index = "<!--\n## No\n| [No](no.md) | |\n-->\n# Index\n## Path\n- [A](a.md): text\n| [B](g/b.md) | see [C](g/c.md) |\n" +
		"| [C](g/c.md) | |\n## Reference\n| [D](d.md) | |\n| [A](a.md) | |\n"
	pages := map[string]string{
		"a.md":   "A\n\nNext: [B](g/b.md)\n",
		"g/b.md": "B\n\nNext: [Cee](c.md)\n",
		"g/c.md": "C\n\nNext: [D](../d.md)\nmore\n",
		"d.md":   "D\n",
		"e.md":   "E\n",
	}
	assert.ElementsMatch(t, []string{
		"g/b.md must end with the line: Next: [C](c.md)",
		"g/c.md must end with the line: Next: [D](../d.md)",
		"a.md is 2 times in the index, and must be there once",
		"e.md is 0 times in the index, and must be there once",
	}, checkIndex(index, pages))
}
