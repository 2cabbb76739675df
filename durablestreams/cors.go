package durablestreams

import (
	"net/http"
	"slices"
)

// exposedHeaders are what a page of another origin may read.
const exposedHeaders = "Stream-Next-Offset, Stream-Cursor, Stream-Up-To-Date, Stream-Closed, Stream-SSE-Data-Encoding, ETag, Retry-After"

// setCORS sets the headers for a page of another origin, if that may read streams.
func setCORS(h http.Header, origins []string, origin string) {
	if len(origins) == 0 {
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		return
	}
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Add("Vary", "Origin")
	switch {
	case origin == "":
		return
	case slices.Contains(origins, origin):
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Access-Control-Allow-Credentials", "true")
	case slices.Contains(origins, "*"):
		h.Set("Access-Control-Allow-Origin", "*")
	default:
		return
	}
	h.Set("Access-Control-Expose-Headers", exposedHeaders)
}

// servePreflight answers what a browser asks before a page of another origin reads a stream.
func servePreflight(w http.ResponseWriter) {
	h := w.Header()
	if h.Get("Access-Control-Allow-Origin") != "" {
		h.Set("Access-Control-Allow-Methods", "GET, HEAD")
		h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-None-Match")
		h.Set("Access-Control-Max-Age", "600")
	}
	w.WriteHeader(http.StatusNoContent)
}
