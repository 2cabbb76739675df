package tsclient_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/nodetest"
)

// documented are the documents with samples of TypeScript, from the directory of the repository.
var documented = []string{"clients/ts/README.md", "docs/guides/clients.md", "docs/guides/contract.md", "docs/guides/formats.md"}

var typeScriptBlock = regexp.MustCompile("(?ms)^```(tsx?)\n(.*?)^```$")

// TestSamples_TypeCheck compiles each block of TypeScript as a module of its own. What a block neither
// declares nor imports, testdata/globals.d.ts declares.
func TestSamples_TypeCheck(t *testing.T) {
	dir := filepath.Join(install(t), "samples")
	nodetest.CopySources(t, "testdata", dir)
	defer func() { _ = os.RemoveAll(dir) }()
	places := map[string]string{}
	for _, document := range documented {
		text, err := os.ReadFile(filepath.Join("../../..", document))
		require.NoError(t, err)
		found := typeScriptBlock.FindAllSubmatchIndex(text, -1)
		assert.NotEmpty(t, found, document)
		for _, at := range found {
			name := fmt.Sprintf("sample%d.%s", len(places), text[at[2]:at[3]])
			places[name] = fmt.Sprintf("%s:%d", document, 1+strings.Count(string(text[:at[4]]), "\n"))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), append(text[at[4]:at[5]], "export {};\n"...), 0o600))
		}
	}
	out, err := tryRun(t, nil, "npx", "tsc", "-p", "samples")
	assert.NoError(t, err, "%s", out)
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(filepath.Base(line), "(")
		assert.Fail(t, places[name]+": "+line)
	}
}
