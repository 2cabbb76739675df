package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPages_AreShort keeps the examples readable.
func TestPages_AreShort(t *testing.T) {
	for limit, paths := range map[int][]string{
		60:  {"page-react/parts.tsx"},
		110: {"page-react/main.tsx"},
		148: {"page-ts/index.html", "page-ts/main.ts"},
		66:  {"view.ts", "page-ts/parts.ts"},
	} {
		lines := 0
		for _, path := range paths {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			lines += strings.Count(string(content), "\n")
		}
		assert.LessOrEqual(t, lines, limit, "%s", paths)
	}
}
