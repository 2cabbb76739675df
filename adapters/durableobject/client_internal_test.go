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
		_, _ = io.WriteString(w, `{"v":2,"tick":1000,"replies":[[[0,1,0,0]]]}`)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	c := newHTTPClient()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	c.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	client := NewClient(server.URL, "secret", &Options{HTTPClient: c})
	_, err := limit.Consume(t.Context(), NewLimiter(client, limit.PerHour(1)), limit.Key{}, 1)
	require.NoError(t, err)
	assert.Equal(t, "HTTP/1.1", protocol)
	assert.Nil(t, c.CheckRedirect, "the given client is not changed")
}

// TestClient_UndecidedCallFailsAlone has a Worker one of whose objects has failed.
func TestClient_UndecidedCallFailsAlone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"v":2,"tick":1000,"replies":[null,[[0,1]],[],[[1],[1]]],"permits":[null,[1,2]]}`)
	}))
	t.Cleanup(server.Close)
	client := NewClient(server.URL, "secret", nil)
	s := NewSemaphore(client, "renders", 2)

	calls := make([]*limitCall, 4)
	for i := range calls {
		calls[i] = &limitCall{Request: make([]part, 1)}
	}
	client.exec(t.Context(), calls)
	require.ErrorIs(t, calls[0].Err, errNotDecided)
	require.NoError(t, calls[1].Err)
	assert.Equal(t, [][]int64{{0, 1}}, calls[1].Response.parts)
	require.ErrorIs(t, calls[2].Err, errSplit)
	require.ErrorContains(t, calls[3].Err, "answered 2 of 1 parts")

	permits := []*permitCall{{}, {}}
	s.exec(t.Context(), permits)
	require.ErrorIs(t, permits[0].Err, errNotDecided)
	require.NoError(t, permits[1].Err)
	assert.Equal(t, permitResponse{acquired: true, inUse: 2}, permits[1].Response)
}
