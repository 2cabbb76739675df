package inspect

import (
	"cmp"
	"embed"
	"net/http"
	"path"
	"strings"
)

//go:embed page
var page embed.FS

// contentTypes are those of the page's files, by the end of their names.
//
//nolint:gochecknoglobals // never changed
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
}

// servePage serves the page and its files, which contain no data.
func (i *Inspector) servePage(w http.ResponseWriter, req *http.Request) {
	name := cmp.Or(strings.TrimPrefix(req.URL.Path, "/"), "index.html")
	text, err := page.ReadFile("page/" + name)
	switch {
	case err != nil:
		writeError(w, http.StatusNotFound, "there is no such page")
		return
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		writeError(w, http.StatusMethodNotAllowed, "pages are read with GET")
		return
	}
	if _, ok := i.authorize(w, req, ViewPage); !ok {
		return
	}
	w.Header().Set("Content-Type", contentTypes[path.Ext(name)])
	_, _ = w.Write(text) // fails only if the client has gone
}
