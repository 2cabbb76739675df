package chat

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"regexp"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

var tokenPattern = regexp.MustCompile(`^(?:([A-Za-z0-9_.-]{1,32}):)?([A-Za-z0-9_.-]{1,32})$`)

// authenticate trusts the token, which is NAME or TENANT:NAME: a real application verifies a
// signature here. A client without a token is a guest and has the zero Identity.
func authenticate(r *http.Request) (router.Identity, error) {
	token := router.Token(r)
	if token == "" {
		return router.Identity{}, nil
	}
	parts := tokenPattern.FindStringSubmatch(token)
	if parts == nil {
		return router.Identity{}, errors.Errorf(errors.Unauthenticated, "use NAME or TENANT:NAME with 1 to 32 characters of A-Z a-z 0-9 _ . - each")
	}
	return router.Identity{TenantID: parts[1], UserID: parts[2]}, nil
}

var guestSeed = maphash.MakeSeed()

// displayName returns the name that other users see. Guests are distinguished by a seeded
// hash of their address, which does not reveal the address.
func displayName(c *router.Conn) string {
	if user := c.Identity().UserID; user != "" {
		return user
	}
	return fmt.Sprintf("guest~%06x", maphash.Comparable(guestSeed, c.IP())&0xffffff)
}
