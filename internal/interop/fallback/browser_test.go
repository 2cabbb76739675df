package fallback_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/interop/hostileproxy"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/router"
)

// TestPage_KeepsItsConnection is about what browsers do. WebSockets are refused in all cases.
func TestPage_KeepsItsConnection(t *testing.T) {
	testscale.FullOnly(t, "TestSite_AnswersWithoutABrowser")
	t.Parallel()
	browser := browsertest.Start(t)
	for name, test := range map[string]func(*testing.T, context.Context){
		"seven tabs":             testSevenTabs,
		"back and forward cache": testBackForwardCache,
		"service worker":         testServiceWorker,
		"another origin":         testAnotherOrigin,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, browser)
		})
	}
}

// testSevenTabs opens more tabs than a browser opens connections to a server over
// HTTP/1.1. One of them is visible.
func testSevenTabs(t *testing.T, browser context.Context) {
	s := startSite(t, 1)
	proxy := hostileproxy.Start(t, s.nodes[0], hostileproxy.RefuseUpgrades)
	first := open(browser, t, proxy.URL, "tab 1")
	first.connect()
	tabs := []*page{first}
	for n := 2; n <= 7; n++ {
		tabs[len(tabs)-1].hide()
		id := fmt.Sprint("tab ", n)
		query := url.Values{"server": {proxy.URL}, "id": {id}}
		tab := &page{first.OpenTab(proxy.URL + "/?" + query.Encode()), id}
		tab.expectBlocked(proxy.URL)
		tab.connect()
		tabs = append(tabs, tab)
	}
	for _, tab := range tabs {
		browsertest.Eval[chromedp.Void](tab.Page, "void page.send(50)")
	}
	for _, tab := range tabs {
		tab.waitComplete(sendLimit)
		s.checkExact(tab)
	}
}

// hide makes a page believe that another tab is in front of it: pages in tests have the focus all the time.
func (p *page) hide() {
	p.T.Helper()
	browsertest.Eval[chromedp.Void](p.Page, `void (Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true }), document.dispatchEvent(new Event("visibilitychange")))`)
}

// testBackForwardCache leaves the page and returns to it.
func testBackForwardCache(t *testing.T, browser context.Context) {
	s := startSite(t, 1)
	proxy := hostileproxy.Start(t, s.nodes[0], hostileproxy.RefuseUpgrades)
	p := open(browser, t, proxy.URL, "ann")
	p.connect()
	p.send(10)
	p.Expect("failed: : net::ERR_ABORTED") // the stream, which the page has ended
	p.Do(chromedp.Navigate(proxy.URL + "/other.html"))
	p.WaitFor(`document.title === "Another page"`)
	browsertest.Eval[chromedp.Void](p.Page, "void history.back()")
	require.Eventually(t, func() bool { return s.resumed.Load() > 0 }, browsertest.Timeout, 10*time.Millisecond)
	assert.True(t, browsertest.Eval[bool](p.Page, "page.wasCached"))
	p.send(10)
	s.checkExact(p)
}

// testServiceWorker has a service worker that passes on all requests.
func testServiceWorker(t *testing.T, browser context.Context) {
	s := startSite(t, 1)
	proxy := hostileproxy.Start(t, s.nodes[0], hostileproxy.RefuseUpgrades)
	p := open(browser, t, proxy.URL, "ann")
	browsertest.Eval[chromedp.Void](p.Page, `void navigator.serviceWorker.register("worker.js")`)
	p.WaitFor("navigator.serviceWorker.controller")
	p.Do(chromedp.Reload())
	p.WaitFor("navigator.serviceWorker.controller && page")
	p.connect()
	p.send(50)
	s.checkExact(p)
	assert.NotContains(t, s.by("ann"), router.TransportWebSocket)
}

// testAnotherOrigin connects to localhost, at which its user has logged in. A browser sends the cookie if the
// page is of the same site, whatever its port.
func testAnotherOrigin(t *testing.T, browser context.Context) {
	files := httptest.NewServer(http.FileServer(http.Dir(buildPage(t))))
	t.Cleanup(files.Close)
	otherSite := files.URL
	sameSite := strings.Replace(files.URL, "127.0.0.1", "localhost", 1)
	start := func(t *testing.T, pages string, origins ...string) (*site, *page) {
		s := startSite(t, 1, origins...)
		server := strings.Replace(hostileproxy.Start(t, s.nodes[0], hostileproxy.RefuseUpgrades).URL, "127.0.0.1", "localhost", 1)
		logIn := chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
			_, err := chromedp.Call(ctx, network.SetCookie, network.SetCookieParams{Name: "user", Value: "ann", URL: server})
			return err
		})
		p := openFrom(browser, t, pages, server, "ann", logIn)
		p.Expect("javascript error: Access to fetch at")
		return s, p
	}
	for pages, user := range map[string]string{sameSite: "ann", otherSite: ""} {
		t.Run(pages, func(t *testing.T) {
			s, p := start(t, pages, pages)
			p.connect()
			p.send(20)
			s.checkExact(p)
			assert.Equal(t, map[string]bool{user: true}, s.of("ann").users)
			assert.NotContains(t, s.by("ann"), router.TransportWebSocket)
		})
	}
	t.Run("that may not connect", func(t *testing.T) {
		s, p := start(t, sameSite)
		p.WaitFor(`page.states.filter((state) => state === "waiting").length > 2`)
		assert.Empty(t, p.transports(), "that is no proof that WebSocket is blocked")
		assert.Empty(t, s.of("ann").numbers)
	})
}
