//go:build !js

package inspectpage_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-go/penstock/adapters/memory"
	"github.com/penstock-go/penstock/errors"
	"github.com/penstock-go/penstock/inspect"
	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/nodetest"
	"github.com/penstock-go/penstock/internal/testscale"
	"github.com/penstock-go/penstock/limit"
	"github.com/penstock-go/penstock/middleware/ratelimit"
	"github.com/penstock-go/penstock/router"
	"github.com/penstock-go/penstock/router/routertest"
)

// What users have chosen, as HTML that opens a dialog if a page parses it.
const (
	hostileUser   = `<img src=x onerror="alert('user')">`
	hostileTenant = `"><svg onload=alert('tenant')>`
	hostileTopic  = `room/<img src=x onerror=alert('topic')>`
	hostileReason = `<b onclick=alert('reason')>reason</b>`
)

type Say struct {
	Text string `json:"text"`
}

func (Say) MessageType() string { return "SAY" }

type Join struct {
	Room string `json:"room"`
}

func (Join) MessageType() string { return "JOIN" }

type Done struct{}

func (Done) MessageType() string { return "DONE" }

// A cluster has three nodes, of which the first one serves the page.
type cluster struct {
	nodes []*router.Router
	url   string
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{}
	b := memory.NewBroker()
	patient := router.Timeouts{Ping: time.Hour, Message: time.Hour} // for a client that does not read
	for n := range 3 {
		r := router.New(&router.Options{Broker: b, Timeouts: patient, Authenticate: func(req *http.Request) (router.Identity, error) {
			if user := req.Header.Get("User"); user != hostileUser {
				return router.Identity{UserID: user}, nil
			}
			return router.Identity{TenantID: hostileTenant, UserID: hostileUser}, nil
		}})
		limiter := memory.NewLimiter(limit.PerHour(2).Named("say"))
		limited := func(in router.IngressContext) int64 {
			if in.Type == "SAY" {
				return 1
			}
			return 0
		}
		inspector := inspect.New(r, &inspect.Options{
			Authorize:   func(*http.Request, inspect.Action) (string, error) { return "olga", nil },
			Audit:       func(context.Context, inspect.AuditEntry) error { return nil },
			Limits:      []inspect.Limit{{Name: "say", Limiter: limiter, Key: ratelimit.KeyPerUser, Cost: limited}},
			RefusalText: func(router.Refusal) string { return hostileReason },
			Message: func(typ string, _ []byte) (router.Message, error) {
				return nil, errors.New(hostileReason + typ)
			},
			Redact:  func(m router.Message) any { return m },
			Timeout: 10 * time.Second,
		})
		r.UseIngress(ratelimit.New(limiter, &ratelimit.Options{Name: "say", Key: ratelimit.KeyPerUser, Cost: limited}))
		router.Topic(r, "room/{id}", &router.TopicOptions{Presence: true})
		router.RPC(r, func(*router.Context, Say) (Done, error) { return Done{}, nil })
		router.RPC(r, func(c *router.Context, m Join) (Done, error) { return Done{}, c.Subscribe(m.Room) })
		c.nodes = append(c.nodes, r)
		if n == 0 {
			server := httptest.NewServer(http.StripPrefix("/inspect", inspector))
			t.Cleanup(server.Close)
			c.url = server.URL + "/inspect/"
		}
	}
	return c
}

// dial connects a user to a node, and subscribes it to a topic.
func (c *cluster) dial(t *testing.T, node int, user string) *routertest.Conn {
	t.Helper()
	client := routertest.Dial(t, c.nodes[node], routertest.Header("User", user))
	routertest.Call[Done](client, Join{hostileTopic})
	return client
}

func userHash(user string) string {
	return "#user?" + url.Values{"tenant": {hostileTenant}, "user": {user}, "type": {"SAY"}}.Encode()
}

// text is what the page shows.
const text = `document.querySelector("main").innerText`

// show opens a view, and waits until it is loaded.
func show(p *browsertest.Page, hash, title string) {
	p.T.Helper()
	browsertest.Eval[any](p, fmt.Sprintf(`void (location.hash = %q)`, hash))
	p.WaitFor(fmt.Sprintf(`document.title.startsWith(%q) && document.querySelector("main h2").innerText === %q && !document.querySelector("main").hasAttribute("aria-busy")`, title, title))
}

func click(p *browsertest.Page, name string) {
	p.T.Helper()
	p.WaitFor(fmt.Sprintf(`[...document.querySelectorAll("button")].find((b) => b.textContent === %q && b.offsetParent)`, name))
	browsertest.Eval[any](p, fmt.Sprintf(`[...document.querySelectorAll("button")].find((b) => b.textContent === %q && b.offsetParent).click()`, name))
}

// confirm answers the dialog.
func confirm(p *browsertest.Page) {
	p.T.Helper()
	p.WaitFor(`document.querySelector("dialog").open`)
	browsertest.Eval[any](p, `document.querySelector("#confirm-yes").click()`)
	p.WaitFor(`!document.querySelector("dialog").open`)
}

// TestInspector_ShowsUsersAsText has HTML in names of users, tenants and topics, in texts of
// refusals and in reasons. A dialog or a violation of the content security policy fails the test.
func TestInspector_ShowsUsersAsText(t *testing.T) {
	c := startCluster(t)
	var clients []*routertest.Conn
	for node := range c.nodes {
		clients = append(clients, c.dial(t, node, hostileUser))
	}
	for range 2 {
		routertest.Call[Done](clients[1], Say{hostileReason})
	}
	require.NotNil(t, routertest.CallError(clients[1], Say{}))
	p := browsertest.Open(browsertest.Start(t), t, c.url)
	p.WaitFor(`document.querySelectorAll("main table tbody tr").length >= 3`)

	show(p, userHash(hostileUser), "User")
	p.WaitFor(text + `.includes(` + fmt.Sprintf("%q", hostileUser) + `)`)
	p.WaitFor(text + `.includes("denied: no_tokens") && document.querySelector(".verdict").innerText.startsWith("It depends: on connection ")`)
	show(p, "#refusals", "Refusals")
	p.WaitFor(text + `.includes("RESOURCE_EXHAUSTED") && ` + text + `.includes(` + fmt.Sprintf("%q", hostileReason) + `)`)
	show(p, "#topics", "Topics")
	p.WaitFor(text + `.includes(` + fmt.Sprintf("%q", hostileTopic) + `)`)
	browsertest.Eval[any](p, `document.querySelector("main td a").click()`)
	p.WaitFor(`document.querySelector("main h2").innerText === "Topic" && ` + text + `.includes(` + fmt.Sprintf("%q", hostileTenant) + `)`)
	p.Expect("status 400")
	p.Expect("network error: Failed to load resource")
	browsertest.Eval[any](p, `void (document.querySelector("main [name=type]").value = "X")`)
	click(p, "Publish")
	confirm(p)
	p.WaitFor(`document.querySelector("#alert").innerText.includes(` + fmt.Sprintf("%q", hostileReason) + `)`)

	show(p, userHash(hostileUser), "User")
	click(p, "Disconnect user")
	confirm(p)
	for _, client := range clients {
		assert.Equal(t, router.StatusPolicyViolation, client.Closed().Code)
	}
	show(p, "#audit", "Audit log")
	p.WaitFor(text + `.includes("disconnect_user") && ` + text + `.includes(` + fmt.Sprintf("%q", hostileUser) + `)`)
	assert.Zero(t, browsertest.Eval[int](p, `document.querySelectorAll("main img, main script, main svg, main b").length`))
}

// TestInspector_ChangesAPolicyAndTraces applies a policy and keeps it, and records messages.
func TestInspector_ChangesAPolicyAndTraces(t *testing.T) {
	testscale.FullOnly(t, "TestInspector_ShowsUsersAsText")
	c := startCluster(t)
	ann := c.dial(t, 2, "ann")
	p := browsertest.Open(browsertest.Start(t), t, c.url+"#limits")
	p.WaitFor(text + `.includes("say: 2/h")`)
	browsertest.Eval[any](p, `(() => {
		document.querySelector("main [name=policy]").value = "50/s"
	})()`)
	click(p, "Preview")
	confirm(p)
	p.WaitFor(text + `.includes("The preview counts for another")`)
	for range 2 {
		routertest.Call[Done](ann, Say{hostileReason})
	}
	require.NotNil(t, routertest.CallError(ann, Say{}))
	p.WaitFor(text + `.includes("say: 2/h denies 1 of 3 (33.3 %), say: 50/s would deny 0 of 3 (0.0 %).")`)
	assert.Equal(t, 3, browsertest.Eval[int](p, `document.querySelectorAll("main .preview svg path.line").length`))
	assert.Equal(t, "50/s", browsertest.Eval[string](p, `document.querySelector("main [name=policy]").value`))
	click(p, "Apply")
	confirm(p)
	p.WaitFor(text + `.includes("say: 50/s returns to say: 2/h")`)
	click(p, "Keep policy")
	confirm(p)
	p.WaitFor(`!` + text + `.includes("returns to") && document.querySelector("main dl").innerText.match(/all 3 nodes\s+say: 50\/s/)`)

	show(p, "#trace?user=ann", "Trace")
	click(p, "Start")
	confirm(p)
	p.WaitFor(text + `.includes("The trace records.")`)
	routertest.Call[Done](ann, Say{hostileReason})
	p.WaitFor(text + `.includes("received") && ` + text + `.includes("handled") && ` + text + `.includes("SAY")`)
	click(p, "Stop")
	confirm(p)
	p.WaitFor(text + `.includes("The trace has ended.")`)
}

// TestInspector_OverviewIsLive shows what three nodes do, by node and by type. It changes while the page is open, and
// not while it is paused; the navigation and the choice stay after a reload.
func TestInspector_OverviewIsLive(t *testing.T) {
	testscale.FullOnly(t, "TestInspector_ShowsUsersAsText")
	c := startCluster(t)
	ann := c.dial(t, 1, "ann")
	p := browsertest.Open(browsertest.Start(t), t, c.url)
	card := func(title string) string {
		return fmt.Sprintf(`[...document.querySelectorAll(".card")].find((card) => card.ariaLabel === %q)`, title)
	}
	p.WaitFor(card("Connections") + `.querySelector("strong").innerText === "1"`)
	assert.Equal(t, 3, browsertest.Eval[int](p, card("Messages")+`.querySelectorAll("li").length`))
	for range 2 {
		routertest.Call[Done](ann, Say{})
	}
	require.NotNil(t, routertest.CallError(ann, Say{}))
	require.NoError(t, c.nodes[0].Publish(hostileTopic, Done{}))
	bob := c.dial(t, 2, "bob")
	p.WaitFor(card("Connections") + `.querySelector("strong").innerText === "2"`)
	p.WaitFor(card("Refusals") + `.querySelector("svg").ariaLabel.includes("at most 0.2/s in 15 minutes")`)
	p.WaitFor(text + `.includes("0 of 2, full in ")`)
	p.WaitFor(`document.querySelector("main .bar.bad").ariaLabel === "Tokens: 0 of 2"`)
	bob.Pause()
	for range 20 {
		require.NoError(t, c.nodes[0].Publish(hostileTopic, Say{strings.Repeat("x", 10_000)}))
	}
	p.WaitFor(`[...document.querySelectorAll("main .bar")].some((bar) => bar.ariaLabel.startsWith("Send queue: "))`)
	bob.Resume()

	browsertest.Eval[any](p, `[...document.querySelectorAll("main .choice a")].find((a) => a.innerText === "by type").click()`)
	p.WaitFor(card("Messages") + `.innerText.includes("SAY") && ` + card("Messages") + `.innerText.includes("JOIN")`)
	p.Do(chromedp.Reload())
	p.WaitFor(card("Messages") + `.innerText.includes("SAY")`)
	assert.Equal(t, "Overview", browsertest.Eval[string](p, `document.querySelector("#views [aria-current]").innerText`))
	p.WaitFor(`document.querySelector("main").innerText.includes("Topics with the most deliveries now")`)

	click(p, "Pause")
	c.dial(t, 0, "cid")
	time.Sleep(6 * time.Second) // longer than a refresh
	assert.Equal(t, "2", browsertest.Eval[string](p, card("Connections")+`.querySelector("strong").innerText`))
	click(p, "Pause")
	p.WaitFor(card("Connections") + `.querySelector("strong").innerText === "3"`)
	browsertest.Eval[any](p, `void (document.querySelector("#find [name=find]").value = "ann")`)
	click(p, "Find")
	p.WaitFor(`document.querySelector(".verdict").innerText.startsWith("Yes: ") && location.hash === "#user?user=ann"`)
	browsertest.Eval[any](p, `void history.back()`)
	p.WaitFor(card("Messages") + `.innerText.includes("SAY")`)
	assert.Zero(t, browsertest.Eval[int](p, `document.querySelector("header").getBoundingClientRect().top`), "the navigation stays")
}

// packages has node_modules with axe-core.
var packages nodetest.Directory

func TestMain(m *testing.M) { packages.Main(m) }

func axe(t *testing.T) string {
	t.Helper()
	dir := packages.Path(t, func(dir string) {
		for _, name := range []string{"package.json", "package-lock.json"} {
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		}
	})
	source, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	require.NoError(t, err)
	return string(source)
}

// views are all views with their titles.
func views(c *cluster) [][2]string {
	connID := ""
	for conn := range c.nodes[1].Conns() {
		connID = conn.ID()
	}
	return [][2]string{
		{"#overview?by=node", "Overview"},
		{"#overview?by=type", "Overview"},
		{userHash(hostileUser), "User"},
		{"#conns", "Connections"},
		{"#conn?id=" + connID, "Connection"},
		{"#refusals", "Refusals"},
		{"#topics", "Topics"},
		{"#topic?name=" + url.QueryEscape(hostileTopic), "Topic"},
		{"#limits?limit=say&user=ann", "Limits"},
		{"#trace", "Trace"},
		{"#audit", "Audit log"},
	}
}

// TestInspector_IsAccessible runs axe-core on every view in both color schemes, and looks at the
// width for a window that is magnified four times.
func TestInspector_IsAccessible(t *testing.T) {
	testscale.FullOnly(t, "TestInspector_ShowsUsersAsText")
	source := axe(t)
	c := startCluster(t)
	for node := range c.nodes {
		client := c.dial(t, node, hostileUser)
		for range 2 {
			routertest.Call[Done](client, Say{})
		}
		require.NotNil(t, routertest.CallError(client, Say{}))
	}
	browser := browsertest.Start(t)
	for _, scheme := range []string{"light", "dark"} {
		p := browsertest.Open(browser, t, c.url, chromedp.EmulateViewport(1280, 900), browsertest.ColorScheme(scheme))
		browsertest.Eval[any](p, source+"; undefined")
		for _, view := range views(c) {
			show(p, view[0], view[1])
			assert.Empty(t, browsertest.Violations(p), "%s in %s", view[1], scheme)
		}
		p.Screenshot("audit-" + scheme)
	}
	p := browsertest.Open(browser, t, c.url, chromedp.EmulateViewport(320, 640))
	browsertest.Eval[any](p, source+"; undefined")
	for _, view := range views(c) {
		show(p, view[0], view[1])
		assert.LessOrEqual(t, browsertest.Eval[int](p, `document.documentElement.scrollWidth`), 320, view[1])
		assert.Empty(t, browsertest.Violations(p), "%s in a narrow window", view[1])
		assert.True(t, browsertest.Eval[bool](p, `(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector("#views"))`), "all views are in sight")
		browsertest.Eval[any](p, `void scrollTo(0, 1e6)`)
		assert.Zero(t, browsertest.Eval[int](p, `document.querySelector("header").getBoundingClientRect().top`), "the navigation stays in "+view[1])
	}
	low := browsertest.Open(browser, t, c.url, chromedp.EmulateViewport(320, 256))
	show(low, "#overview?by=node", "Overview")
	browsertest.Eval[any](low, `void scrollTo(0, 1e6)`)
	assert.Negative(t, browsertest.Eval[float64](low, `document.querySelector("header").getBoundingClientRect().bottom`), "a low window is for the content")
}

// TestInspector_WorksWithTheKeyboard finds a connection and closes it without a mouse.
func TestInspector_WorksWithTheKeyboard(t *testing.T) {
	testscale.FullOnly(t, "TestInspector_ShowsUsersAsText")
	c := startCluster(t)
	ann := c.dial(t, 2, "ann")
	p := browsertest.Open(browsertest.Start(t), t, c.url)
	p.WaitFor(`document.querySelector("main table")`)
	tab := func(target string) { // until the element has the focus
		t.Helper()
		for range 60 {
			p.Do(chromedp.KeyEvent(kb.Tab))
			if browsertest.Eval[bool](p, `document.activeElement.textContent === "`+target+`" || document.activeElement.name === "`+target+`"`) {
				require.True(t, browsertest.Eval[bool](p, `getComputedStyle(document.activeElement).outlineStyle !== "none"`), "the focus on %s is not visible", target)
				return
			}
		}
		require.FailNow(t, "Tab does not reach "+target)
	}
	tab("User")
	p.Do(chromedp.KeyEvent(kb.Enter))
	p.WaitFor(`document.querySelector("main h2").innerText === "User" && document.activeElement.id === "main"`)
	tab("user")
	p.Do(chromedp.KeyEvent("ann" + kb.Enter))
	p.WaitFor(`document.querySelector("main td a").hash.startsWith("#conn?") && document.activeElement.id === "main"`)
	tab("Disconnect user")
	p.Do(chromedp.KeyEvent(kb.Enter))
	p.WaitFor(`document.querySelector("dialog").open && document.activeElement.textContent === "Cancel"`)
	p.Do(chromedp.KeyEvent(kb.Enter))
	p.WaitFor(`!document.querySelector("dialog").open && document.activeElement.textContent === "Disconnect user"`)
	assert.Zero(t, ann.Pending())
	p.Do(chromedp.KeyEvent(kb.Enter))
	p.WaitFor(`document.querySelector("dialog").open`)
	tab("Disconnect user")
	p.Do(chromedp.KeyEvent(kb.Enter))
	assert.Equal(t, router.StatusPolicyViolation, ann.Closed().Code)
	p.WaitFor(`document.querySelector("#status").innerText === "Disconnect user: done" && document.activeElement.textContent === "Disconnect user"`)
}
