//go:build !js

package routertest_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

func TestRefresh_ReturnsValidityAndErrors(t *testing.T) {
	r := router.New(&router.Options{Authenticate: func(req *http.Request) (router.Identity, error) {
		switch router.Token(req) {
		case "short":
			return router.Identity{UserID: "ann", ExpiresAt: time.Now().Add(time.Hour)}, nil
		case "long":
			return router.Identity{UserID: "ann"}, nil
		}
		return router.Identity{}, errors.Errorf(errors.Unauthenticated, "unknown token")
	}})
	conn := routertest.Dial(t, r, routertest.Token("short"))
	assert.InDelta(t, time.Hour, routertest.Refresh(conn, "short"), float64(time.Minute))
	assert.Zero(t, routertest.Refresh(conn, "long"))
	assert.Equal(t, errors.Errorf(errors.Unauthenticated, "unknown token"), routertest.RefreshError(conn, "other"))
}
