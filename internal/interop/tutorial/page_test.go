package tutorial_test

import (
	"context"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"

	"github.com/penstock-go/penstock/internal/interop/browsertest"
	"github.com/penstock-go/penstock/internal/redistest"
	"github.com/penstock-go/penstock/internal/testscale"
)

// JavaScript expressions for what a page shows.
const (
	shownItems   = `[...document.querySelectorAll("#items li")].map((li) => li.firstChild.textContent.trim())`
	shownError   = `document.querySelector("#error").textContent`
	shownMembers = `document.querySelector("#members").textContent`
	addButton    = `document.querySelector("#add button").textContent`
	canAdd       = `!document.querySelector("#add").hidden`
	asksForLogin = `!document.querySelector("#login").hidden`
)

// A page is a page of the tutorial.
type page struct {
	*browsertest.Page
}

func open(browser context.Context, t *testing.T, addr, fragment string) *page {
	t.Helper()
	return &page{browsertest.Open(browser, t, "http://"+addr+"/"+fragment)}
}

// submit enters a text in a field and submits its form.
func (p *page) submit(field, text string) {
	p.T.Helper()
	p.eval(`const field = document.querySelector("` + field + `"); field.value = "` + text + `"; field.form.requestSubmit()`)
}

func (p *page) eval(script string) {
	p.T.Helper()
	browsertest.Eval[chromedp.Void](p.Page, "void (() => { "+script+" })()")
}

func (p *page) logIn(user string) {
	p.T.Helper()
	p.WaitFor(asksForLogin)
	p.WaitEqual(shownError, "log in first")
	p.submit("#login input", user)
	p.WaitFor(canAdd)
}

// TestSteps_Pages operates the pages of the steps in Chromium.
func TestSteps_Pages(t *testing.T) {
	testscale.FullOnly(t, "TestSteps_FirstOneRuns")
	browser := browsertest.Start(t)
	for step, test := range []func(*testing.T, context.Context, *project){
		testFirstPage, testErrors, testLists, testCalls, testLogin, testLimit, testRecovery,
	} {
		p := newProject(t, step+1)
		t.Run(string(rune('1'+step)), func(t *testing.T) {
			p.t = t
			p.runGo("build", "-o", "groceries", ".")
			test(t, browser, p)
		})
	}
}

func testFirstPage(t *testing.T, browser context.Context, p *project) {
	n := p.start(nil)
	first := open(browser, t, n.addr, "")
	first.submit("#text", "milk")
	first.WaitEqual(shownItems, []string{"milk"}) // so it is subscribed
	second := open(browser, t, n.addr, "")
	second.submit("#text", "bread")
	second.WaitEqual(shownItems, []string{"bread"})
	first.WaitEqual(shownItems, []string{"milk", "bread"})
}

func testErrors(t *testing.T, browser context.Context, p *project) {
	n := p.start(nil)
	first := open(browser, t, n.addr, "")
	first.submit("#text", "milk")
	first.submit("#text", "bread")
	late := open(browser, t, n.addr, "")
	late.WaitEqual(shownItems, []string{"milk", "bread"})
	late.eval(`document.querySelector("#items button").click()`)
	first.WaitEqual(shownItems, []string{"bread"})
	first.eval(`
		window.errors = []
		import("/penstock-client.js").then(({ createClient }) => {
			const client = createClient({ url: location.origin.replace(/^http/, "ws") + "/ws" })
			client.onError((error) => window.errors.push(error.code + " " + error.message))
			return client.sendWithAck("REMOVE", { id: 4711 })
		})`)
	first.WaitEqual(`window.errors`, []string{"NOT_FOUND this item has been removed already"})
}

func testLists(t *testing.T, browser context.Context, p *project) {
	n := p.start(nil)
	home, party := open(browser, t, n.addr, "#home"), open(browser, t, n.addr, "#party")
	home.WaitFor(canAdd)
	party.WaitFor(canAdd)
	home.submit("#text", "milk")
	party.submit("#text", "crisps")
	home.WaitEqual(shownItems, []string{"milk"})
	party.WaitEqual(shownItems, []string{"crisps"})
	open(browser, t, n.addr, "#secret").WaitEqual(shownError, `there is no list "secret"`)
}

func testCalls(t *testing.T, browser context.Context, p *project) {
	n := p.start(nil)
	first := open(browser, t, n.addr, "")
	first.WaitFor(canAdd)
	first.submit("#text", "")
	first.WaitEqual(shownError, "text must have 1 to 100 characters")
	first.WaitFor(`document.querySelector("#text").ariaInvalid === "true"`)
	first.submit("#text", "milk")
	first.WaitEqual(shownItems, []string{"milk"})
	first.WaitEqual(shownError, "")
	first.WaitEqual(`document.querySelector("#text").value`, "")
}

func testLogin(t *testing.T, browser context.Context, p *project) {
	n := p.start([]string{"SECRET="})
	ann, bob := open(browser, t, n.addr, ""), open(browser, t, n.addr, "")
	ann.Expect("status 400")
	ann.Expect("network error: Failed to load resource")
	ann.WaitFor(asksForLogin)
	ann.submit("#login input", "no spaces")
	ann.WaitEqual(shownError, "use 1 to 20 letters and digits\n")
	ann.submit("#login input", "ann")
	ann.WaitFor(canAdd)
	bob.logIn("bob")
	ann.submit("#text", "milk")
	bob.WaitEqual(shownItems, []string{"milk (ann)"})
	bob.submit("#text", "bread")
	ann.WaitEqual(shownItems, []string{"milk (ann)", "bread (bob)"})
}

func testLimit(t *testing.T, browser context.Context, p *project) {
	n := p.start(nil)
	ann := open(browser, t, n.addr, "")
	ann.logIn("ann")
	for range 6 {
		ann.submit("#text", "milk")
	}
	ann.WaitEqual(addButton, "Wait 2 s")
	ann.WaitEqual(addButton, "Add")
	assert.LessOrEqual(t, browsertest.Eval[int](ann.Page, shownItems+`.length`), 6)
}

func testRecovery(t *testing.T, browser context.Context, p *project) {
	n := p.start(nil)
	proxy := redistest.StartProxy(t, n.addr) // forwards any TCP connection
	ann, bob := open(browser, t, n.addr, ""), open(browser, t, proxy.Addr, "")
	bob.Expect("network error: WebSocket connection to")
	ann.logIn("ann")
	bob.logIn("bob")
	ann.WaitEqual(shownMembers, "ann, bob")
	ann.submit("#text", "milk")
	bob.WaitEqual(shownItems, []string{"milk (ann)"})

	bob.eval(`document.querySelector("#items li").dataset.before = "yes"`)
	proxy.Cut()
	bob.WaitEqual(`document.querySelector("#connection").textContent`, "Connecting again …")
	ann.submit("#text", "bread")
	ann.WaitEqual(shownItems, []string{"milk (ann)", "bread (ann)"})
	assert.Equal(t, "ann, bob", browsertest.Eval[string](ann.Page, shownMembers), "the session keeps the member")
	proxy.Restore()
	bob.WaitEqual(shownItems, []string{"milk (ann)", "bread (ann)"})
	bob.WaitFor(`document.querySelector("#items li").dataset.before === "yes"`) // only the change was sent

	// The page that comes back from the cache of the browser reports what it shows as an item.
	bob.eval(`addEventListener("pageshow", ({ persisted }) => {
		const report = setInterval(() => {
			if (document.querySelectorAll("#items li").length > 1) return
			clearInterval(report)
			document.querySelector("#text").value = persisted + " " + ` + shownItems + `
			document.querySelector("#add").requestSubmit()
		}, 20)
	})`)
	bob.Do(chromedp.Navigate("about:blank"))
	ann.eval(`document.querySelector("#items button").click()`)
	ann.WaitEqual(shownItems, []string{"bread (ann)"})
	bob.eval(`setTimeout(() => history.back())`) // delayed: an evaluation fails if the page goes away
	ann.WaitEqual(shownItems, []string{"bread (ann)", "true bread (ann) (bob)"})
}
