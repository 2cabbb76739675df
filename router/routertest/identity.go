//go:build !js

package routertest

import (
	"time"

	"github.com/penstock-go/penstock/errors"
)

// refresh is the call of the protocol that refreshes an identity.
type refresh struct {
	Token string `json:"token"`
}

// MessageType returns the name in the protocol.
func (refresh) MessageType() string { return "$ws:auth" }

// refreshed is the reply to refresh.
type refreshed struct {
	ExpiresInMs int64 `json:"expiresInMs"`
}

// MessageType returns the name in the protocol.
func (refreshed) MessageType() string { return "$ws:authenticated" }

// Refresh sends a token that refreshes the identity of the connection, and returns how long the
// new identity is valid, or 0 if it does not expire. An error fails the test.
func Refresh(c *Conn, token string) time.Duration {
	c.t.Helper()
	return time.Duration(Call[refreshed](c, refresh{token}).ExpiresInMs) * time.Millisecond
}

// RefreshError sends a token that the server must reject, and returns the error. If the identity
// is refreshed, the test fails.
func RefreshError(c *Conn, token string) *errors.Error {
	c.t.Helper()
	return CallError(c, refresh{token})
}
