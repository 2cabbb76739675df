package contract

import (
	"net/http"
	"sync"

	"github.com/penstock-go/penstock/router"
)

// Handler returns a handler that serves the contract of a router as JSON, for the command penstock:
//
//	mux.Handle("GET /contract", contract.Handler(r, nil))
//
// The contract names all messages and limits, so mount it only where its readers may know them.
// The handler builds it at the first request, when all routes are registered. If that fails, the answer is
// the status 500 with the error of [New].
func Handler(r *router.Router, opts *Options) http.Handler {
	build := sync.OnceValues(func() ([]byte, error) {
		c, err := New(r.Describe(), opts)
		if err != nil {
			return nil, err
		}
		return c.Document(), nil
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the contract is read with GET", http.StatusMethodNotAllowed)
			return
		}
		text, err := build()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(text) // fails only if the client has gone
	})
}
