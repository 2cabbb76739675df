package inspect

import (
	"embed"
	"net/http"
)

//go:embed page
var page embed.FS

// files are those of the page by path, with their types.
//
//nolint:gochecknoglobals // never changed
var files = map[string][2]string{
	"/":          {"page/index.html", "text/html; charset=utf-8"},
	"/app.js":    {"page/app.js", "text/javascript; charset=utf-8"},
	"/views.js":  {"page/views.js", "text/javascript; charset=utf-8"},
	"/dom.js":    {"page/dom.js", "text/javascript; charset=utf-8"},
	"/icon.svg":  {"page/icon.svg", "image/svg+xml"},
	"/style.css": {"page/style.css", "text/css; charset=utf-8"},
}

// servePage serves the page and its files, which contain no data.
func (i *Inspector) servePage(w http.ResponseWriter, req *http.Request) {
	file, ok := files[req.URL.Path]
	switch {
	case !ok:
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
	text, err := page.ReadFile(file[0])
	if err != nil {
		writeError(w, http.StatusInternalServerError, "the page is missing")
		return
	}
	w.Header().Set("Content-Type", file[1])
	_, _ = w.Write(text) // fails only if the client has gone
}
