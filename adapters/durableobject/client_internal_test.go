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
		_, _ = io.WriteString(w, `{"v":1,"tick":1000,"held":[0],"at":[1]}`)
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
		_, _ = io.WriteString(w, `{"v":1,"tick":1000,"held":[null,0],"at":[1,1],"done":[false,true],"permits":[null,[1,2]]}`)
	}))
	t.Cleanup(server.Close)
	client := NewClient(server.URL, "secret", nil)
	l, s := NewLimiter(client, limit.PerHour(1)), NewSemaphore(client, "renders", 2)

	p := l.policy.Load()
	buckets := []*bucketCall{{Request: bucketRequest{policy: p}}, {Request: bucketRequest{policy: p}}}
	l.exec(t.Context(), buckets)
	require.ErrorIs(t, buckets[0].Err, errNotDecided)
	require.NoError(t, buckets[1].Err)

	blocks := []*blockCall{{}, {}}
	l.execBlocks(t.Context(), blocks)
	require.ErrorIs(t, blocks[0].Err, errNotDecided)
	require.NoError(t, blocks[1].Err)

	permits := []*permitCall{{}, {}}
	s.exec(t.Context(), permits)
	require.ErrorIs(t, permits[0].Err, errNotDecided)
	require.NoError(t, permits[1].Err)
	assert.Equal(t, permitResponse{acquired: true, inUse: 2}, permits[1].Response)
}
