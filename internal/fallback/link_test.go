package fallback_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/testscale"
)

// links reports whether a program in testdata links this package, by its symbols.
func links(t *testing.T, program string) bool {
	t.Helper()
	binary := filepath.Join(t.TempDir(), program)
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./testdata/"+program).CombinedOutput()
	require.NoError(t, err, string(out))
	symbols, err := exec.CommandContext(t.Context(), "go", "tool", "nm", binary).Output()
	require.NoError(t, err)
	require.Contains(t, string(symbols), "penstock/router.(*Router).ServeHTTP")
	return strings.Contains(string(symbols), "penstock/internal/fallback.")
}

// TestLink_OnlyIfMounted has programs with and without a call of Router.HTTPFallback.
func TestLink_OnlyIfMounted(t *testing.T) {
	t.Parallel()
	for _, program := range testscale.Sample([]string{"unmounted", "mounted"}, 1) {
		assert.Equal(t, program == "mounted", links(t, program))
	}
}
