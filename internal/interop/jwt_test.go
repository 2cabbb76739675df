package interop_test

import (
	"log/slog"
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

// The code up to TestJWT_CodeIsThatOfTheGuide is in docs/guides/authentication.md.

// verify returns the claims of a JWT that was signed with secret by HMAC-SHA256.
func verify(token string, secret []byte) (*jwt.RegisteredClaims, error) {
	claims := new(jwt.RegisteredClaims)
	_, err := jwt.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return secret, nil },
		jwt.WithValidMethods([]string{"HS256"}), // never let the token choose
		jwt.WithExpirationRequired(),
		jwt.WithIssuer("https://login.example.com"),
		jwt.WithAudience("chat"))
	return claims, err
}

// options authenticate clients by JWT.
func options(secret []byte) *router.Options {
	return &router.Options{
		Authenticate: func(req *http.Request) (router.Identity, error) {
			claims, err := verify(router.Token(req), secret)
			if err != nil || claims.Subject == "" {
				return router.Identity{}, &errors.Error{Code: errors.Unauthenticated, Message: "token is not valid", Err: err}
			}
			return router.Identity{UserID: claims.Subject, Data: claims, ExpiresAt: claims.ExpiresAt.Time}, nil
		},
		RefuseAfterUpgrade: true, // invalid tokens are closed with 4401, too
		OnRefused: func(refusal router.Refusal) {
			slog.Info("refused", "ip", refusal.IP, "reason", refusal.Reason, "code", refusal.Code, "error", refusal.Err)
		},
	}
}

func TestJWT_CodeIsThatOfTheGuide(t *testing.T) {
	source, err := os.ReadFile("jwt_test.go")
	require.NoError(t, err)
	_, code, _ := strings.Cut(string(source), "// verify returns")
	code, _, _ = strings.Cut(code, "func TestJWT_CodeIsThatOfTheGuide")
	guide, err := os.ReadFile("../../docs/guides/authentication.md")
	require.NoError(t, err)
	assert.Contains(t, string(guide), strings.TrimSpace(code))
}

var jwtSecret = []byte("a secret of at least 32 random bytes")

func sign(t *testing.T, method jwt.SigningMethod, key any, change func(*jwt.RegisteredClaims)) string {
	claims := jwt.RegisteredClaims{
		Issuer:    "https://login.example.com",
		Audience:  jwt.ClaimStrings{"chat"},
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
	r := router.New(options(jwtSecret))
	for name, token := range map[string]string{
		"none":            "",
		"other key":       sign(t, jwt.SigningMethodHS256, []byte("another secret"), nil),
		"unsigned":        sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil),
		"other algorithm": sign(t, jwt.SigningMethodHS512, jwtSecret, nil),
		"expired": sign(t, jwt.SigningMethodHS256, jwtSecret, func(c *jwt.RegisteredClaims) {
			c.ExpiresAt = jwt.NewNumericDate(time.Now().Add(-time.Minute))
		}),
		"no expiry":      sign(t, jwt.SigningMethodHS256, jwtSecret, func(c *jwt.RegisteredClaims) { c.ExpiresAt = nil }),
		"other issuer":   sign(t, jwt.SigningMethodHS256, jwtSecret, func(c *jwt.RegisteredClaims) { c.Issuer = "https://evil.example" }),
		"other audience": sign(t, jwt.SigningMethodHS256, jwtSecret, func(c *jwt.RegisteredClaims) { c.Audience = jwt.ClaimStrings{"mail"} }),
		"no subject":     sign(t, jwt.SigningMethodHS256, jwtSecret, func(c *jwt.RegisteredClaims) { c.Subject = "" }),
	} {
		t.Run(name, func(t *testing.T) {
			conn := routertest.Dial(t, r, routertest.Token(token))
			assert.Equal(t, router.CloseError{Code: 4401, Reason: `{"code":"UNAUTHENTICATED","message":"token is not valid"}`}, conn.Closed())
		})
	}
}

func TestJWT_ConnectionEndsWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := router.New(options(jwtSecret))
		token := func() string { return sign(t, jwt.SigningMethodHS256, jwtSecret, nil) }
		conn := routertest.Dial(t, r, routertest.Token(token()))
		for c := range r.Conns() {
			assert.Equal(t, "ann", c.Identity().UserID)
		}
		time.Sleep(30 * time.Minute)
		assert.Equal(t, time.Hour, routertest.Refresh(conn, token()))
		bob := sign(t, jwt.SigningMethodHS256, jwtSecret, func(c *jwt.RegisteredClaims) { c.Subject = "bob" })
		assert.Equal(t, errors.PermissionDenied, routertest.RefreshError(conn, bob).Code)
		assert.Equal(t, errors.Unauthenticated, routertest.RefreshError(conn, "forged").Code)
		time.Sleep(time.Hour - time.Second)
		assert.Zero(t, conn.Pending())
		assert.EqualValues(t, 4401, conn.Closed().Code)
		delay := time.Second // of the answer to the forged token
		assert.Equal(t, 90*time.Minute+delay, time.Since(start).Round(time.Second))
	})
}
