package fallback_test

import (
	"context"
	"testing"
	"time"

	"github.com/chromedp/cdproto/security"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/interop/hostileproxy"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

// A proxyCase is a proxy in front of a site, and the transports that a page may use behind it.
type proxyCase struct {
	name       string
	transports []router.Transport
	returns    bool // to WebSocket in a test of minutes, since a probe succeeds
	start      func(t *testing.T, s *site) (url string)
}

// behind returns a case for a proxy of package hostileproxy.
func behind(name string, transports []router.Transport, faults ...hostileproxy.Fault) proxyCase {
	return proxyCase{name: name, transports: transports, start: func(t *testing.T, s *site) string {
		return hostileproxy.Start(t, s.nodes[0], faults...).URL
	}}
}

// A page also polls if a busy machine lets it wait for 3 s.
var (
	viaWebSocket = []router.Transport{router.TransportWebSocket}
	viaHTTP      = []router.Transport{router.TransportHTTPStream, router.TransportHTTPPoll}
	viaPoll      = []router.Transport{router.TransportHTTPPoll}
)

func proxyCases() []proxyCase {
	slow := behind("WebSockets open after 8 s", viaHTTP, hostileproxy.DelayUpgrades(8*time.Second))
	slow.returns = true
	return []proxyCase{
		slow,
		behind("no faults", viaWebSocket),
		behind("WebSockets are reset after 200 ms", viaHTTP, hostileproxy.ResetUpgraded(200*time.Millisecond)),
		behind("WebSockets are mute", viaHTTP, hostileproxy.MuteUpgraded),
		behind("WebSockets are refused", viaHTTP, hostileproxy.RefuseUpgrades),
		behind("WebSockets only send", viaHTTP, hostileproxy.OnlyUp),
		behind("WebSockets only receive", viaHTTP, hostileproxy.OnlyDown),
		behind("bodies are held", viaHTTP, hostileproxy.RefuseUpgrades, hostileproxy.HoldBodies(60)),
		behind("responses are dropped", viaHTTP, hostileproxy.RefuseUpgrades, hostileproxy.DropResponses(20)),
		behindNginx("nginx, HTTP 1.1", viaHTTP, "", ""),
		behindNginx("nginx, HTTP 2", viaHTTP, "ssl http2", ""),
		behindNginx("nginx that buffers, HTTP 1.1", viaPoll, "", forcedBuffering),
		behindNginx("nginx that buffers, HTTP 2", viaPoll, "ssl http2", forcedBuffering),
	}
}

// TestPage_LosesNothingBehindProxies sends from a page behind each proxy at the same time.
func TestPage_LosesNothingBehindProxies(t *testing.T) {
	testscale.FullOnly(t, "TestSite_AnswersWithoutABrowser")
	t.Parallel()
	numbers := int(testscale.Duration(0, 6*time.Second) / interval)
	s := startSite(t, 2)
	browser := browsertest.Start(t)
	trust := chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, security.SetIgnoreCertificateErrors, security.SetIgnoreCertificateErrorsParams{Ignore: true})
		return err
	})
	cases := proxyCases()
	pages := make([]*page, len(cases))
	for i, c := range cases {
		pages[i] = open(browser, t, c.start(t, s), c.name, trust)
		pages[i].sendWhenConnected(c.transports, numbers)
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := pages[i]
			p.T = t
			p.waitComplete(2*testscale.Soak() + sendLimit)
			s.checkExact(p)
			permitted := c.transports
			if c.returns {
				permitted = append(permitted, router.TransportWebSocket)
			}
			assert.Subset(t, permitted, s.by(c.name))
		})
	}
}
