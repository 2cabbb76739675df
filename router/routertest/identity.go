//go:build !js

package routertest

import (
	"time"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/internal/protocol"
)

// Refresh sends a token that refreshes the identity of the connection, and returns how long the
// new identity is valid, or 0 if it does not expire. An error fails the test.
func Refresh(c *Conn, token string) time.Duration {
	c.t.Helper()
	return time.Duration(Call[protocol.Authenticated](c, protocol.Auth{Token: token}).ExpiresInMs) * time.Millisecond
}

// RefreshError sends a token that the server must reject, and returns the error. If the identity
// is refreshed, the test fails.
func RefreshError(c *Conn, token string) *errors.Error {
	c.t.Helper()
	return CallError(c, protocol.Auth{Token: token})
}
