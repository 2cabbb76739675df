package fallback_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSite_AnswersWithoutABrowser asks what the page asks first. Package internal/fallback tests the rest.
func TestSite_AnswersWithoutABrowser(t *testing.T) {
	s := newSite(t, 1, "")
	resp, err := http.Get(s.nodes[0] + "/ws/http")
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, []any{http.StatusNoContent, "1"}, []any{resp.StatusCode, resp.Header.Get("Penstock-Fallback")})

	resp, err = http.Post(s.nodes[0]+"/ws/http?open", "text/plain;charset=UTF-8", strings.NewReader(`{"mode":"stream"}`))
	require.NoError(t, err)
	assert.Equal(t, []any{http.StatusOK, "text/event-stream"}, []any{resp.StatusCode, resp.Header.Get("Content-Type")})
	require.NoError(t, resp.Body.Close())
}
