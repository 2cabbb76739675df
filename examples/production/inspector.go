package main

import (
	"crypto/subtle"
	"net/http"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/inspect"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
)

// newInspector returns the inspector at /inspect/, for operators who know the password. Their names are in the audit log.
func newInspector(r *router.Router, additions limit.Limiter, password string) http.Handler {
	inspector := http.StripPrefix("/inspect", inspect.New(r, &inspect.Options{
		Authorize: func(req *http.Request, _ inspect.Action) (string, error) {
			operator, given, _ := req.BasicAuth()
			if operator == "" || subtle.ConstantTimeCompare([]byte(given), []byte(password)) != 1 {
				return "", errors.Errorf(errors.Unauthenticated, "log in with your name and the password")
			}
			return operator, nil
		},
		Limits: []inspect.Limit{{Name: limitName, Limiter: additions, Key: ratelimit.KeyPerIP}},
	}))
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="inspector"`) // the browser asks after 401
		inspector.ServeHTTP(w, req)
	})
}
