package fallback_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLink_OnlyIfMounted looks for the symbols of this package in a program that mounts Router.HTTPFallback, and in one
// that does not.
func TestLink_OnlyIfMounted(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"mounted": true, "unmounted": false} {
		binary := filepath.Join(t.TempDir(), name)
		out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./testdata/"+name).CombinedOutput()
		require.NoError(t, err, string(out))
		symbols, err := exec.CommandContext(t.Context(), "go", "tool", "nm", binary).Output()
		require.NoError(t, err)
		assert.Contains(t, string(symbols), "penstock/router.(*Router).ServeHTTP")
		assert.Equal(t, want, strings.Contains(string(symbols), "penstock/internal/fallback."), name)
	}
}
