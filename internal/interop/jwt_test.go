package interop_test

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// The code up to TestJWT_CodeIsThatOfTheGuide is in docs/guides/getting-started.md.

// authenticate runs before a connection is accepted.
func authenticate(req *http.Request) (router.Identity, error) {
	claims := new(jwt.RegisteredClaims)
	_, err := jwt.ParseWithClaims(router.Token(req), claims, func(*jwt.Token) (any, error) { return secret, nil },
		jwt.WithValidMethods([]string{"HS256"}), jwt.WithExpirationRequired())
	if err != nil || claims.Subject == "" {
		return router.Identity{}, &errors.Error{Code: errors.Unauthenticated, Message: "log in first", Err: err}
	}
	return router.Identity{UserID: claims.Subject, ExpiresAt: claims.ExpiresAt.Time}, nil
}

func TestJWT_CodeIsThatOfTheGuide(t *testing.T) {
	source, err := os.ReadFile("jwt_test.go")
	require.NoError(t, err)
	_, code, _ := strings.Cut(string(source), "// authenticate runs")
	code, _, _ = strings.Cut(code, "func TestJWT_CodeIsThatOfTheGuide")
	guide, err := os.ReadFile("../../docs/guides/getting-started.md")
	require.NoError(t, err)
	assert.Contains(t, string(guide), strings.TrimSpace(code))
}

var (
	secret  = []byte("a secret of at least 32 random bytes")
	options = &router.Options{Authenticate: authenticate, RefuseAfterUpgrade: true}
)

func sign(t *testing.T, method jwt.SigningMethod, key any, change func(*jwt.RegisteredClaims)) string {
	claims := jwt.RegisteredClaims{
		Subject:   "ann",
		ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}
	if change != nil {
		change(&claims)
	}
	token, err := jwt.NewWithClaims(method, claims).SignedString(key)
	require.NoError(t, err)
	return token
}

func TestJWT_InvalidTokensAreRejected(t *testing.T) {
	r := router.New(options)
	for name, token := range map[string]string{
		"none":            "",
		"other key":       sign(t, jwt.SigningMethodHS256, []byte("another secret"), nil),
		"unsigned":        sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil),
		"other algorithm": sign(t, jwt.SigningMethodHS512, secret, nil),
		"expired": sign(t, jwt.SigningMethodHS256, secret, func(c *jwt.RegisteredClaims) {
			c.ExpiresAt = jwt.NewNumericDate(time.Now().Add(-time.Minute))
		}),
		"no expiry":  sign(t, jwt.SigningMethodHS256, secret, func(c *jwt.RegisteredClaims) { c.ExpiresAt = nil }),
		"no subject": sign(t, jwt.SigningMethodHS256, secret, func(c *jwt.RegisteredClaims) { c.Subject = "" }),
	} {
		t.Run(name, func(t *testing.T) {
			conn := routertest.Dial(t, r, routertest.Token(token))
			assert.Equal(t, router.CloseError{Code: 4401, Reason: `{"code":"UNAUTHENTICATED","message":"log in first"}`}, conn.Closed())
		})
	}
}

func TestJWT_ConnectionEndsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := router.New(options)
		token := func() string { return sign(t, jwt.SigningMethodHS256, secret, nil) }
		conn := routertest.Dial(t, r, routertest.Token(token()))
		for c := range r.Conns() {
			assert.Equal(t, "ann", c.Identity().UserID)
		}
		time.Sleep(30 * time.Minute)
		assert.Equal(t, time.Hour, routertest.Refresh(conn, token()))
		bob := sign(t, jwt.SigningMethodHS256, secret, func(c *jwt.RegisteredClaims) { c.Subject = "bob" })
		assert.Equal(t, errors.PermissionDenied, routertest.RefreshError(conn, bob).Code)
		assert.Equal(t, errors.Unauthenticated, routertest.RefreshError(conn, "forged").Code)
		time.Sleep(time.Hour - time.Second)
		assert.Zero(t, conn.Pending())
		assert.EqualValues(t, 4401, conn.Closed().Code)
		delay := time.Second // of the answer to the forged token
		assert.Equal(t, 90*time.Minute+delay, time.Since(start).Round(time.Second))
	})
}
