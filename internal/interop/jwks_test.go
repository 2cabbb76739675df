package interop_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// The code up to TestJWKS_CodeIsThatOfTheGuide is in docs/guides/authentication.md.

// newAuthenticate returns a function for Options.Authenticate that accepts the tokens of an identity
// provider. It loads the provider's keys, again every hour until ctx ends, and for a token with a new key.
func newAuthenticate(ctx context.Context, keysURL, issuer, audience string) (func(*http.Request) (router.Identity, error), error) {
	keys, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{keysURL}, keyfunc.Override{
		NoErrorReturnFirstHTTPReq: new(false), // a server without keys would log all users out
		HTTPTimeout:               5 * time.Second,
		RateLimitWaitMax:          time.Second, // forged tokens with unknown keys do not hold handshakes up
	})
	if err != nil {
		return nil, err
	}
	return func(req *http.Request) (router.Identity, error) {
		claims := new(jwt.RegisteredClaims)
		_, err := jwt.ParseWithClaims(router.Token(req), claims, keys.KeyfuncCtx(req.Context()),
			jwt.WithValidMethods([]string{"RS256", "ES256"}), jwt.WithIssuer(issuer), jwt.WithAudience(audience), jwt.WithExpirationRequired())
		if err != nil || claims.Subject == "" {
			return router.Identity{}, &errors.Error{Code: errors.Unauthenticated, Message: "log in first", Err: err}
		}
		return router.Identity{UserID: claims.Subject, ExpiresAt: claims.ExpiresAt.Time}, nil
	}, nil
}

func TestJWKS_CodeIsThatOfTheGuide(t *testing.T) {
	source, err := os.ReadFile("jwks_test.go")
	require.NoError(t, err)
	_, code, _ := strings.Cut(string(source), "// newAuthenticate returns")
	code, _, _ = strings.Cut(code, "func TestJWKS_CodeIsThatOfTheGuide")
	guide, err := os.ReadFile("../../docs/guides/authentication.md")
	require.NoError(t, err)
	assert.Contains(t, string(guide), strings.TrimSpace(code))
}

// A provider serves the public key of its current private key.
type provider struct {
	*httptest.Server

	key atomic.Pointer[rsa.PrivateKey]
	id  atomic.Value // of the key, a string
}

func startProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{}
	p.rotate(t, "first")
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		encode := base64.RawURLEncoding.EncodeToString
		public := p.key.Load().PublicKey
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []map[string]any{{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": p.id.Load(),
			"n": encode(public.N.Bytes()), "e": encode(big.NewInt(int64(public.E)).Bytes()),
		}}})
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) rotate(t *testing.T, id string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	p.key.Store(key)
	p.id.Store(id)
}

func (p *provider) sign(t *testing.T, method jwt.SigningMethod, key any, change func(*jwt.RegisteredClaims)) string {
	t.Helper()
	claims := jwt.RegisteredClaims{Subject: "ann", Issuer: "https://login.example", Audience: jwt.ClaimStrings{"chat"}, ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour))}
	if change != nil {
		change(&claims)
	}
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = p.id.Load()
	text, err := token.SignedString(key)
	require.NoError(t, err)
	return text
}

func TestJWKS_TokensOfTheProviderAreAccepted(t *testing.T) {
	p := startProvider(t)
	authenticate, err := newAuthenticate(t.Context(), p.URL, "https://login.example", "chat")
	require.NoError(t, err)
	r := router.New(&router.Options{Authenticate: authenticate, RefuseAfterUpgrade: true})
	accept := func(token string) {
		t.Helper()
		conn := routertest.Dial(t, r, routertest.Token(token))
		conn.Close()
	}
	key := p.key.Load()
	accept(p.sign(t, jwt.SigningMethodRS256, key, nil))

	other, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	for name, token := range map[string]string{
		"other key":        p.sign(t, jwt.SigningMethodRS256, other, nil),
		"other issuer":     p.sign(t, jwt.SigningMethodRS256, key, func(c *jwt.RegisteredClaims) { c.Issuer = "https://login.other" }),
		"other audience":   p.sign(t, jwt.SigningMethodRS256, key, func(c *jwt.RegisteredClaims) { c.Audience = jwt.ClaimStrings{"shop"} }),
		"no expiry":        p.sign(t, jwt.SigningMethodRS256, key, func(c *jwt.RegisteredClaims) { c.ExpiresAt = nil }),
		"public as secret": p.sign(t, jwt.SigningMethodHS256, x509.MarshalPKCS1PublicKey(&key.PublicKey), nil),
		"unsigned":         p.sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, nil),
	} {
		conn := routertest.Dial(t, r, routertest.Token(token))
		assert.Equal(t, router.CloseError{Code: 4401, Reason: `{"code":"UNAUTHENTICATED","message":"log in first"}`}, conn.Closed(), name)
	}

	p.rotate(t, "second")
	accept(p.sign(t, jwt.SigningMethodRS256, p.key.Load(), nil))
	p.rotate(t, "third") // too early for another request
	began := time.Now()
	conn := routertest.Dial(t, r, routertest.Token(p.sign(t, jwt.SigningMethodRS256, p.key.Load(), nil)))
	assert.EqualValues(t, 4401, conn.Closed().Code)
	assert.Less(t, time.Since(began), 30*time.Second)
}

func TestJWKS_ServerDoesNotStartWithoutKeys(t *testing.T) {
	p := startProvider(t)
	p.Close()
	_, err := newAuthenticate(t.Context(), p.URL, "https://login.example", "chat")
	assert.Error(t, err)
}
