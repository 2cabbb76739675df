package durableobject

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/limit"
)

// TestClient_SpeaksHTTP11 has a server that prefers HTTP/2, as Cloudflare does.
func TestClient_SpeaksHTTP11(t *testing.T) {
	protocol := ""
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol = r.Proto
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"v":1,"tick":1000,"held":[0]}`)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c := newHTTPClient()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	client := NewClient(server.URL, "secret", &Options{HTTPClient: c})
	_, err := NewLimiter(client, limit.PerHour(1)).Consume(t.Context(), limit.Key{}, 1)
	require.NoError(t, err)
	assert.Equal(t, "HTTP/1.1", protocol)
	assert.Nil(t, c.CheckRedirect, "the given client is not changed")
}
