package wskit_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

func TestWebSocket_RefreshesIdentity(t *testing.T) { runNode(t, "identity.test.mjs", identities) }

// identities reads a token as the user and, after a colon, the milliseconds until the identity
// expires.
var identities = feature{configure: func(opts *router.Options) {
	opts.Authenticate = func(req *http.Request) (router.Identity, error) {
		user, expiry, expires := strings.Cut(router.Token(req), ":")
		id := router.Identity{UserID: user}
		if expires {
			ms, err := strconv.Atoi(expiry)
			if err != nil {
				return router.Identity{}, errors.Errorf(errors.Unauthenticated, "the token is invalid")
			}
			id.ExpiresAt = time.Now().Add(time.Duration(ms) * time.Millisecond)
		}
		return id, nil
	}
}}
