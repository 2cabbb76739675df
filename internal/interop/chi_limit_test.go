package interop_test

import (
	"io"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/httplimit"
)

// newAPI limits all routes, and the expensive one additionally.
func newAPI(requests, searches limit.Limiter) http.Handler {
	api := chi.NewRouter()
	api.Use(httplimit.New(requests, nil))
	api.Get("/rooms", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "rooms\n") })
	api.With(httplimit.New(searches, &httplimit.Options{Name: "search"})).
		Get("/search", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "results\n") })
	return api
}
