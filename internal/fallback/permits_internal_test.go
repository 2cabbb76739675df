package fallback

import (
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPermits_OneClientGetsHalf(t *testing.T) {
	var p permits
	p.init(4)
	client, other := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	for _, c := range []netip.Prefix{client, other} {
		assert.True(t, p.acquire(c))
		assert.True(t, p.acquire(c))
		assert.False(t, p.acquire(c))
	}
	assert.False(t, p.acquire(netip.MustParsePrefix("192.0.2.3/32")))
	p.release(client, http.StatusOK)
	assert.True(t, p.acquire(client))
}

// TestPermits_GuessesOccupyThem releases permits of requests for connections that do not exist.
func TestPermits_GuessesOccupyThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p permits
		p.init(2)
		client := netip.MustParsePrefix("192.0.2.1/32")
		assert.True(t, p.acquire(client))
		p.release(client, http.StatusConflict)
		assert.False(t, p.acquire(client))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.True(t, p.acquire(client))
	})
}
