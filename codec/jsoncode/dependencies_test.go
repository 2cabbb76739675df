package jsoncode_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPackage_LinksOnlyTheJSONLibrary keeps packages with generated code free of the router.
func TestPackage_LinksOnlyTheJSONLibrary(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	require.NoError(t, err)
	for path := range strings.Lines(string(out)) {
		path = strings.TrimSpace(path)
		if pkg, ours := strings.CutPrefix(path, "github.com/penstock-go/penstock/"); ours {
			assert.Contains(t, []string{"codec/jsoncode", "internal/jsonv2", "errors"}, pkg)
		} else {
			assert.True(t, strings.HasPrefix(path, "github.com/go-json-experiment/json"), path)
		}
	}
}
