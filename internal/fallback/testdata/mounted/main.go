// Command mounted is a server with HTTP fallback.
package main

import (
	"net/http"

	"github.com/penstock-go/penstock/router"
)

func main() {
	r := router.New(nil)
	http.Handle("/ws", r)
	http.Handle("/ws/http", r.HTTPFallback(nil))
	panic(http.ListenAndServe(":8080", nil)) //nolint:gosec // only its symbols are looked at
}
