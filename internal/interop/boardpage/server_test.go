package boardpage_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/client"
)

// TestServer_AnswersWhatThePagesSend loads pages, and talks to the server as the pages do, without a
// browser and without Node.js, which builds them.
func TestServer_AnswersWhatThePagesSend(t *testing.T) {
	pages := t.TempDir()
	for _, name := range []string{"index.html", "style.css", "icon.svg", "page-ts/index.html", "page-react/index.html"} {
		content, err := os.ReadFile(filepath.Join("../../../examples/board", name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(pages, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(pages, name), content, 0o600))
	}
	s := startSite(t, pages)
	for path, want := range map[string]string{
		"/":            `href="page-ts/"`,
		"/style.css":   "{",
		"/icon.svg":    "<svg",
		"/page-ts/":    `<script type="module" src="main.js">`,
		"/page-react/": `<script type="module" src="main.js">`,
	} {
		resp, err := http.Get("http://" + s.proxy.Addr + path)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		assert.Equal(t, http.StatusOK, resp.StatusCode, path)
		assert.Contains(t, string(body), want, path)
	}

	w := s.watch()
	want := s.publish("note ", 2*notesPerConn)
	w.waitNotes(want...)
	for range 2 { // a note that is sent again is added once
		_, err := client.Call[notePosted](t.Context(), s.connect("ann"), postNote{"1", "hello"})
		require.NoError(t, err)
	}
	want = append(want, "ann: hello")
	w.waitNotes(append(want, s.publish("last ", 1)...)...)
}
