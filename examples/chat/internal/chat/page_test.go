package chat

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/examples/chat/page"
)

var (
	fileReference    = regexp.MustCompile(`(?:href|src|from)="?([a-z][a-z.-]+)"|from "\./([a-z.-]+)"`)
	elementReference = regexp.MustCompile(`byId\("([^"]+)"\)`)
	sentMessage      = regexp.MustCompile(`\b(?:call|send|sendWithAck)\("([A-Z_]+)"`)
	contentTypes     = map[string]string{"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
)

// TestPage_FilesAreServedAndFitTogether loads the page as a browser does: index.html, and every file to
// which a loaded file refers. What the page does is tested in Chromium, in internal/interop/chatpage.
func TestPage_FilesAreServedAndFitTogether(t *testing.T) {
	chat := newServer(newConfig(t))
	loaded := map[string]string{}
	var load func(name string)
	load = func(name string) {
		if _, ok := loaded[name]; ok {
			return
		}
		w := httptest.NewRecorder()
		chat.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+strings.TrimSuffix(name, "index.html"), nil))
		require.Equal(t, http.StatusOK, w.Code, name)
		assert.Contains(t, w.Header().Get("Content-Type"), contentTypes[name[strings.LastIndex(name, ".")+1:]], name)
		assert.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'self'", name)
		loaded[name] = w.Body.String()
		for _, reference := range fileReference.FindAllStringSubmatch(loaded[name], -1) {
			load(reference[1] + reference[2])
		}
	}
	load("index.html")
	embedded, err := fs.Glob(page.Files, "*")
	require.NoError(t, err)
	for _, name := range embedded {
		assert.Contains(t, loaded, name, "no file refers to it")
	}

	types, err := os.ReadFile("../../contract.ts")
	require.NoError(t, err)
	var sent []string
	for name, text := range loaded {
		for _, element := range elementReference.FindAllStringSubmatch(text, -1) {
			assert.Contains(t, loaded["index.html"], ` id="`+element[1]+`"`, "%s uses an element that does not exist", name)
		}
		if strings.HasPrefix(name, "penstock-") {
			continue
		}
		for _, message := range sentMessage.FindAllStringSubmatch(text, -1) {
			assert.Contains(t, string(types), " "+message[1]+": ", "%s sends what the server does not know", name)
			sent = append(sent, message[1])
		}
	}
	slices.Sort(sent)
	assert.Equal(t, []string{"JOIN_ROOM", "LEAVE_ROOM", "SAY", "SEARCH_HISTORY", "WHO"}, slices.Compact(sent))
}
