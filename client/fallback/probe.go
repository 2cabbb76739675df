//go:build !js

package fallback

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/penstock-go/penstock/internal/protocol"
	"github.com/penstock-go/penstock/internal/random"
	"github.com/penstock-go/penstock/internal/rules"
	"github.com/penstock-go/penstock/internal/wsframe"
)

// When WebSocket is tried.
const (
	minProbeWait = time.Minute // doubles up to maxProbeWait
	maxProbeWait = 30 * time.Minute
	probeTimeout = 10 * time.Second
)

// goAway asks the client for another connection.
const goAway = `{"type":"` + protocol.TypeGoAway + `","meta":{},"payload":{"reconnectAfterMs":0}}`

// returnToWebSocket tries whether WebSocket works again, and lets the client open a connection by
// it. The client then closes this one; if it could not open one, another attempt follows later.
func (c *conn) returnToWebSocket() {
	for rules.Sleep(c.ctx, c.t.nextProbe()) == nil {
		if c.t.probe(c.ctx, c.header) {
			c.t.works()
			_ = c.write(wsframe.Text, []byte(goAway))
		}
	}
}

// nextProbe returns how long to wait before WebSocket is tried.
func (t *roundTripper) nextProbe() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	wait := t.probeWait
	t.probeWait = min(2*wait, maxProbeWait)
	return wait + random.N(wait/2)
}

// probe reports whether a WebSocket lasts: on the URL of the fallback, the server sends two
// messages, three seconds apart.
func (t *roundTripper) probe(ctx context.Context, h http.Header) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var key [16]byte
	_, _ = rand.Read(key[:]) // never fails
	req := t.request(ctx, http.MethodGet, "", h, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	req.Header.Set("Sec-WebSocket-Version", "13")
	req.Header.Set("Sec-WebSocket-Key", base64.StdEncoding.EncodeToString(key[:]))
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return false
	}
	stop := context.AfterFunc(ctx, func() { _ = resp.Body.Close() })
	defer stop()
	const maxProbeBytes = 1 << 10
	r := wsframe.NewReader(bufio.NewReader(resp.Body), maxProbeBytes, func([]byte) error { return nil })
	for range 2 {
		if _, _, err := r.Append(nil); err != nil {
			return false
		}
	}
	return true
}
