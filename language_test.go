package penstock_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// phrases are words that have a plainer equivalent.
var phrases = regexp.MustCompile(`(?i)\b(also (if|those|of)|by themselves|usual program|nobody|whoever|somebody|` +
	`(the|a|is|are|was|were) told|tells|telling|at rest|by hand|so (many|much) that)\b`)

// TestLanguage_PlainWords reads documents, and comments in Go and TypeScript.
func TestLanguage_PlainWords(t *testing.T) {
	paths := filesOf(t, ".md", ".go", ".ts")
	assert.Greater(t, len(paths), 1000)
	for _, path := range paths {
		if path == "language_test.go" {
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			if filepath.Ext(path) != ".md" {
				_, line, _ = strings.Cut(line, "// ")
			}
			assert.Empty(t, phrases.FindString(line), "%s:%d", path, i+1)
		}
	}
}

// maxWidth is the number of characters to which paragraphs are filled.
const maxWidth = 130

// TestLanguage_ParagraphsAreFilled finds lines that are too long, except in tables, code, pictures and
// diagrams, and except words that do not fit.
func TestLanguage_ParagraphsAreFilled(t *testing.T) {
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		code := false
		for i, line := range strings.Split(string(text), "\n") {
			trimmed := strings.TrimSpace(line)
			if strings.HasPrefix(trimmed, "```") {
				code = !code
			}
			if code || trimmed == "" || strings.ContainsAny(trimmed[:1], "|!<#") || len(strings.Fields(line)) < 3 {
				continue
			}
			assert.LessOrEqual(t, utf8.RuneCountInString(line), maxWidth, "%s:%d", path, i+1)
		}
	}
}
