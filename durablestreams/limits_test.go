package durablestreams_test

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/durablestreams"
	"github.com/penstock-go/penstock/router"
)

// TestHandler_BoundsReadersPerAddress has one client that opens live reads and does not end them.
func TestHandler_BoundsReadersPerAddress(t *testing.T) {
	s := start(t, func(_ *durablestreams.Options[token], f *durablestreams.Options[router.StoredMessage]) {
		f.MaxPerAddress = 2
	})
	first := s.events("/topics/ann-1?offset=now&live=sse")
	s.events("/topics/ann-1?offset=now&live=sse")
	got := s.get("/topics/ann-1")
	assert.Equal(t, http.StatusTooManyRequests, got.StatusCode)
	assert.NotEmpty(t, got.Header.Get("Retry-After"))
	assert.NoError(t, first.resp.Body.Close())
	assert.Eventually(t, func() bool { return s.get("/topics/ann-1").StatusCode == http.StatusOK }, 10*time.Second, 10*time.Millisecond)
}

// TestHandler_AddressesOfOneNetworkAreOne has a client that reads from several addresses of its IPv6 network.
func TestHandler_AddressesOfOneNetworkAreOne(t *testing.T) {
	s := start(t, func(_ *durablestreams.Options[token], f *durablestreams.Options[router.StoredMessage]) {
		f.MaxPerAddress = 2
		f.Proxies.Networks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	})
	s.events("/topics/ann-1?offset=now&live=sse", "X-Forwarded-For", "2001:db8::1")
	s.events("/topics/ann-1?offset=now&live=sse", "X-Forwarded-For", "2001:db8::2")
	for address, want := range map[string]int{
		"2001:db8::3": http.StatusTooManyRequests, "2001:db8:0:1::3": http.StatusOK, "192.0.2.1": http.StatusOK,
	} {
		assert.Equal(t, want, s.do(http.MethodGet, "/topics/ann-1", "X-Forwarded-For", address).StatusCode, address)
	}
}

func TestHandler_BoundsReaders(t *testing.T) {
	s := start(t, func(_ *durablestreams.Options[token], f *durablestreams.Options[router.StoredMessage]) {
		f.MaxReaders = 1
	})
	s.events("/topics/ann-1?offset=now&live=sse")
	assert.Equal(t, http.StatusTooManyRequests, s.get("/topics/ann-1").StatusCode)
	assert.Equal(t, http.StatusNotFound, s.get("/runs/ann-1").StatusCode, "another handler")
}

func TestHandler_CORS(t *testing.T) {
	s := start(t, func(_ *durablestreams.Options[token], f *durablestreams.Options[router.StoredMessage]) {
		f.Origins = []string{"https://app.example.com"}
	})
	for origin, want := range map[string]string{"https://evil.example.com": "", "https://app.example.com": "https://app.example.com"} {
		got := s.do(http.MethodGet, "/topics/ann-1", "Origin", origin)
		assert.Equal(t, want, got.Header.Get("Access-Control-Allow-Origin"))
		assert.Equal(t, "Origin", got.Header.Get("Vary"))
		preflight := s.do(http.MethodOptions, "/topics/ann-1", "Origin", origin, "Access-Control-Request-Method", "GET")
		assert.Equal(t, want != "", preflight.Header.Get("Access-Control-Allow-Methods") != "")
	}
	assert.Empty(t, s.do(http.MethodGet, "/runs/ann-1", "Origin", "https://app.example.com").Header.Get("Access-Control-Allow-Origin"))
}
