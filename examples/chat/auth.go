package main

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"regexp"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
)

var tokenPattern = regexp.MustCompile(`^(?:([A-Za-z0-9_.-]{1,32}):)?([A-Za-z0-9_.-]{1,32})$`)

// authenticate takes a token for what it says: NAME or TENANT:NAME. A real
// application verifies a signature here. Without a token, one is a guest.
func authenticate(r *http.Request) (router.Identity, error) {
	token := router.Token(r)
	if token == "" {
		return router.Identity{}, nil
	}
	parts := tokenPattern.FindStringSubmatch(token)
	if parts == nil {
		return router.Identity{}, errors.Errorf(errors.Unauthenticated,
			"a token is NAME or TENANT:NAME, each of 1 to 32 characters of A-Z a-z 0-9 _ . -")
	}
	return router.Identity{TenantID: parts[1], UserID: parts[2]}, nil
}

var guestSeed = maphash.MakeSeed()

// userOf returns the name that others see. Guests are told apart by address,
// which their name does not give away.
func userOf(c *router.Conn) string {
	if user := c.Identity().UserID; user != "" {
		return user
	}
	return fmt.Sprintf("guest~%06x", maphash.Comparable(guestSeed, c.IP())&0xffffff)
}
